"""The figure that stays: panels, size, and that any browser can read it."""

from __future__ import annotations

import json

import pytest

from tests.dashboard.runs import frames_of_a_run
from tnt_notebook.dashboard.figures import metric_curves, overview
from tnt_notebook.telemetry import Recorder


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_epochs_training_solid_and_validation_dashed():
    figure = overview(frames_of_a_run())
    drawn = traces(figure)
    assert list(drawn["loss"].x) == [1, 2, 3]
    assert drawn["loss"].line.dash == "solid"
    assert drawn["val_loss"].line.dash == "dash"
    assert drawn["val_accuracy"].xaxis == drawn["accuracy"].xaxis != drawn["loss"].xaxis
    assert {"rank 0", "rank 1"} < set(drawn)


def test_before_two_epochs_the_curves_are_over_time():
    axis, curves = metric_curves(frames_of_a_run(until=10))
    assert axis == "seconds"
    assert curves["loss"][1][-1] == pytest.approx(0.1)


def test_many_ranks_are_a_heat_map():
    heat = overview(frames_of_a_run(100)).data[-1]
    assert heat.type == "heatmap"
    assert len(heat.z) <= 64
    assert list(heat.y)[:2] == [0, 2]


@pytest.mark.parametrize("ranks", [1, 16, 64, 1024])
def test_a_long_run_stays_small(ranks):
    figure = overview(frames_of_a_run(ranks, epochs=10, steps=200, metrics=("a", "b", "c")))
    assert len(json.dumps(figure.to_plotly_json())) < 100_000


def test_nan_is_valid_json():
    recorder = Recorder(1, "fit", 1, start=0.0)
    frames = []
    for step, loss in enumerate([1.0, float("nan"), float("inf")], start=1):
        recorder.step(1, step, 3, {"loss": loss}, [8], float(step))
        frames.append(recorder.frame(float(step)))
    bundle = json.dumps(overview(frames).to_plotly_json(), allow_nan=False)
    assert json.loads(bundle)["data"][0]["y"] == [1.0, None, None]


def test_predict_has_throughput_only():
    recorder = Recorder(2, "predict", start=0.0)
    frames = []
    for step in range(1, 6):
        recorder.step(1, step, 5, {}, [8, 8], float(step))
        frames.append(recorder.frame(float(step)))
    assert list(traces(overview(frames))) == ["rank 0", "rank 1"]
