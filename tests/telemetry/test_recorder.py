"""The recorder, replayed with given times."""

import json

import numpy as np
import pytest

from tests.telemetry.by_hand import step_of
from tnt_notebook.telemetry import Breakdown, Recorder
from tnt_notebook.telemetry.step_trace import Box


def run_steps(recorder, epoch, count, *, begin, step_time=0.1, steps=10, samples=(32, 32)):
    """Ends `count` steps, the first at `begin`; returns the time of the last."""
    now = begin
    for step in range(1, count + 1):
        now = begin + (step - 1) * step_time
        recorder.step(epoch, step, steps, {"loss": 1 / step}, list(samples), now)
    return now


def test_before_the_first_step_nothing_is_known():
    frame = Recorder(2, "fit", 3, start=100.0).frame(101.5)
    assert frame["epoch"] == frame["step"] == 0
    assert (frame["elapsed"], frame["eta"]) == (1.5, None)
    assert (frame["rates"], frame["samples"]) == ([0.0, 0.0], [0, 0])
    assert "rows" not in frame


def test_frames_are_numbered_and_json_and_samples_add_up_per_rank():
    recorder = Recorder(2, "predict", start=0.0)
    frames = [recorder.frame(0.1)]
    now = run_steps(recorder, 1, 4, begin=1.0, samples=(32, 16))
    frames.append(recorder.frame(now))
    assert [frame["seq"] for frame in frames] == [1, 2]
    assert json.loads(json.dumps(frames, allow_nan=False)) == frames
    assert frames[1]["samples"] == [128, 64]


def test_rates_are_measured_between_steps_not_between_frames():
    """A step of 1 s and five frames a second: each shows the true rate, none shows zero."""
    recorder = Recorder(1, start=0.0)
    shown = []
    for tick in range(1, 51):
        now = tick / 5
        if tick % 5 == 0:
            recorder.step(1, tick // 5, None, {}, [100], now)
        shown.append(recorder.frame(now)["rates"][0])
    assert shown[10:] == pytest.approx([100.0] * 40)


def test_rates_are_a_batch_by_the_median_step_whatever_is_between_epochs():
    recorder = Recorder(2, start=0.0)
    recorder.epoch_begin(1.0)
    now = run_steps(recorder, 1, 10, begin=3.0, samples=(30, 10))  # the first one traces
    recorder.step(1, 11, 11, {}, [4, 2], now + 0.1)  # the last batch is a small one
    recorder.epoch_end(1, {}, now + 7.0)
    frame = recorder.frame(now + 7.0)
    assert sum(frame["rates"]) == pytest.approx(400) and frame["rates"][0] > 290
    assert frame["spent"]["first_steps_s"] == pytest.approx(2.0)
    assert frame["spent"]["steps_s"] == pytest.approx(1.0)
    # A look knows better.
    recorder.breakdown([Breakdown(0, 0.2, 0, 0, 0, 0)] * 2, 0.2)
    frame = recorder.frame(now + 7.0)
    assert sum(frame["rates"]) == pytest.approx(200) and frame["step_s"] == 0.2


def test_eta_is_steps_left_times_step_time_and_counts_down():
    recorder = Recorder(2, "fit", 2, start=0.0)
    now = run_steps(recorder, 1, 5, begin=30.0)  # 30 s of tracing are not held against the rest
    assert recorder.frame(now)["eta"] == pytest.approx(15 * 0.1)
    assert recorder.frame(now + 0.04)["eta"] == pytest.approx(15 * 0.1 - 0.04)


def test_eta_counts_the_validation_of_the_epochs_left():
    recorder = Recorder(2, "fit", 3, start=0.0)
    now = run_steps(recorder, 1, 10, begin=1.0)
    recorder.epoch_end(1, {}, now + 2.0)
    assert recorder.frame(now + 2.0)["eta"] == pytest.approx(2 * (10 * 0.1 + 2.0))


def test_one_long_pause_hardly_moves_the_eta():
    recorder = Recorder(2, "fit", 1, start=0.0)
    now = run_steps(recorder, 1, 40, begin=1.0, steps=100)
    recorder.step(1, 41, 100, {}, [32, 32], now + 60.0)
    assert recorder.frame(now + 60.0)["eta"] == pytest.approx(59 * 0.1, rel=0.15)


def test_unknown_epoch_length_is_known_after_the_first_epoch():
    recorder = Recorder(2, "fit", 2, start=0.0)
    now = run_steps(recorder, 1, 10, begin=1.0, steps=None)
    frame = recorder.frame(now)
    assert frame["steps"] is frame["eta"] is None
    recorder.epoch_end(1, {}, now)
    now = run_steps(recorder, 2, 5, begin=now + 0.1, steps=None)
    frame = recorder.frame(now)
    assert frame["steps"] == 10
    assert frame["eta"] == pytest.approx(0.5)


def test_several_steps_per_execution_count_as_several():
    recorder = Recorder(1, "fit", 1, start=0.0)
    for step, now in ((5, 1.0), (10, 2.0), (15, 3.0)):
        recorder.step(1, step, 20, {}, [160], now)
    assert recorder.frame(3.0)["eta"] == pytest.approx(1.0)


def test_rows_come_once_after_an_epoch_and_again_at_the_end():
    recorder = Recorder(2, "fit", 2, start=0.0)
    now = run_steps(recorder, 1, 10, begin=1.0)
    assert "rows" not in recorder.frame(now)
    recorder.epoch_end(1, {"loss": 0.5, "val_loss": np.float32(0.25)}, now)
    rows = [{"epoch": 1, "loss": 0.5, "val_loss": 0.25}]
    assert recorder.frame(now)["rows"] == rows
    assert "rows" not in recorder.frame(now)
    last = recorder.frame(now, "finished")
    assert last["rows"] == rows
    assert last["eta"] is None


def test_a_run_that_goes_on_at_the_end_of_an_epoch_has_its_place():
    """Nothing is left of the epoch but its end: no step tells where the run is."""
    recorder = Recorder(2, "fit", 3, start=0.0)
    recorder.earlier([1], {"loss": [0.5]}, epoch=2, step=10, steps=10)
    frame = recorder.frame(0.1)
    assert (frame["epoch"], frame["step"], frame["steps"]) == (2, 10, 10)
    recorder.epoch_end(2, {"loss": 0.25}, 0.2)
    frame = recorder.frame(0.2)
    assert (frame["epoch"], frame["step"], frame["steps"]) == (2, 10, 10)
    assert frame["rows"] == [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]
    now = run_steps(recorder, 3, 5, begin=0.3)
    assert recorder.frame(now)["eta"] == pytest.approx(0.5)


def test_numbers_that_are_not_finite_are_none_and_arrays_are_left_out():
    recorder = Recorder(1, start=0.0)
    numbers = {"loss": float("nan"), "norm": np.float32("inf"), "ok": np.ones(())}
    recorder.step(1, 1, 10, {**numbers, "map": np.zeros((2, 2))}, [1], 1.0)
    assert recorder.frame(1.0)["logs"] == {"loss": None, "norm": None, "ok": 1.0}


def test_rows_stay_bounded_and_keep_the_last():
    recorder = Recorder(1, "fit", 5000, start=0.0)
    for epoch in range(1, 5001):
        recorder.epoch_end(epoch, {"loss": 1.0}, float(epoch))
    rows = recorder.frame(5001.0, "finished")["rows"]
    assert len(rows) <= 500
    assert (rows[0]["epoch"], rows[-1]["epoch"]) == (1, 5000)


def test_the_frame_of_a_thousand_ranks_is_bounded():
    ranks = 1024
    recorder = Recorder(ranks, "fit", 3, start=0.0)
    for step in range(1, 100):
        logs = {"loss": 1 / step, "accuracy": 1 - 1 / step}
        recorder.step(1, step, 100, logs, [31 + step % 3] * ranks, 0.1 * step)
    recorder.breakdown([Breakdown(0.00123456, 0.0456789, 0.0, 0.0, 0.0123456, 0.00345678)] * ranks)
    # As many boxes as a look at so many ranks brings.
    times = [(0.01 * n, 0.01 * n + 0.009) for n in range(28)]
    some = [Box(rank, "C", 0, 0, *time) for rank in range(0, ranks, 51) for time in times]
    trace = step_of(*some, pipeline=1, ranks=ranks)
    recorder.seen(trace, memory=[3 << 30] * ranks, energy=1e6, rate=1e9, flops=1e9)
    assert len(json.dumps(recorder.frame(10.0))) < 90_000  # every 17 s, see observe/progress.py
    assert len(json.dumps(recorder.frame(10.1))) < 25_000  # those between
