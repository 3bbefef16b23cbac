"""The figure that stays: panels, size, and that any browser can read it."""

import json
import math

import pytest

from tests.dashboard.runs import frames_of_a_run, frames_of_an_evaluation
from tnt_notebook.dashboard.figures.breakdown import MOST_ROWS, figure_of
from tnt_notebook.dashboard.figures.figures import metric_curves, metric_figure, run_figure
from tnt_notebook.telemetry import Breakdown, Recorder


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_epochs_training_solid_and_validation_dashed():
    figure = run_figure(frames_of_a_run())
    drawn = traces(figure)
    assert list(drawn["loss"].x) == [1, 2, 3]
    assert drawn["loss"].line.dash == "solid"
    assert drawn["val_loss"].line.dash == "dash"
    assert drawn["val_accuracy"].xaxis == drawn["accuracy"].xaxis != drawn["loss"].xaxis
    assert list(drawn["each rank"].y)[-1] == pytest.approx(320, rel=0.1)
    assert "latest steps, of each rank" in str(figure.layout.annotations)


def test_ranks_that_differ_have_lines_and_those_of_one_pipeline_share_one():
    apart = set(traces(run_figure(frames_of_a_run(uneven=3))))
    assert {"rank 0", "rank 1"} < apart and "each rank" not in apart
    one = run_figure(frames_of_a_run(4, sharing=4))
    assert "all" in traces(one) and "latest steps, of" not in str(one.layout.annotations)


def test_before_two_epochs_the_curves_are_over_time():
    axis, curves = metric_curves(frames_of_a_run(until=10))
    assert axis == "seconds"
    assert curves["loss"][1][-1] == pytest.approx(0.1)


def test_many_ranks_are_a_heat_map():
    heat = run_figure(frames_of_a_run(100, uneven=3)).data[-1]
    assert heat.type == "heatmap"
    assert len(heat.z) <= 64
    assert list(heat.y)[:2] == [0, 2]


@pytest.mark.parametrize("ranks", [1, 16, 64, 1024])
def test_a_long_run_stays_small(ranks):
    figure = run_figure(
        frames_of_a_run(ranks, epochs=10, steps=200, metrics=("a", "b", "c"), uneven=3)
    )
    assert len(json.dumps(figure.to_plotly_json())) < 100_000


def test_nan_is_valid_json():
    recorder = Recorder(1, "fit", 1, start=0.0)
    frames = []
    for step, loss in enumerate([1.0, float("nan"), float("inf")], start=1):
        recorder.step(1, step, 3, {"loss": loss}, [8], float(step))
        frames.append(recorder.frame(float(step)))
    bundle = json.dumps(run_figure(frames).to_plotly_json(), allow_nan=False)
    assert json.loads(bundle)["data"][0]["y"] == [1.0, None, None]


def test_what_was_never_finite_has_no_curve():
    recorder = Recorder(1, "fit", 2, start=0.0)
    recorder.step(1, 1, 1, {"loss": math.nan}, [8], 1.0)
    for epoch in (1, 2):
        recorder.epoch_end(epoch, {"loss": math.nan, "mae": 1.0 / epoch - 0.5}, float(epoch))
    assert [trace.name for trace in metric_figure([recorder.frame(3.0)]).data] == ["mae"]
    alone = Recorder(1, "fit", 1, start=0.0)
    alone.step(1, 1, 1, {"loss": math.inf}, [8], 1.0)
    assert metric_figure([alone.frame(2.0, "stopped")]) is None


def test_predict_has_throughput_only():
    frames = [frame | {"logs": {}} for frame in frames_of_an_evaluation()]
    assert list(traces(run_figure(frames))) == ["each rank"]


STEP = Breakdown(input=0.001, work=0.008, wait=0.0, skew=0.0, exchange=0.002, other=0.0005)


def test_a_row_for_each_rank_and_a_colour_for_each_part_that_there_is():
    figure = figure_of([STEP, STEP._replace(work=0.010, exchange=0.0)], "Rank 1 is slow. " * 20)
    bars = {bar.name: list(bar.x) for bar in figure.data}
    assert bars == {"input": [1, 1], "work": [8, 10], "exchange": [2, 0], "other": [0.5, 0.5]}
    assert list(figure.data[0].y) == ["rank 0", "rank 1"]
    assert figure.layout.xaxis.title.text == "ms"
    title = figure.layout.annotations[0].text.split("<br>")
    assert len(title) == 6 and max(map(len, title[2:])) < 130 and "Rank 1 is slow." in title[2]


def test_of_many_ranks_some_stand_for_all():
    figure = figure_of([STEP] * 1024, "")
    rows = list(figure.data[0].y)
    assert len(rows) == MOST_ROWS
    assert (rows[0], rows[-1]) == ("rank 0", "rank 1023")
    assert f"1,024 ranks, {MOST_ROWS} of them shown" in figure.layout.annotations[0].text
    assert len(json.dumps(figure.to_plotly_json(), default=list)) < 60_000
