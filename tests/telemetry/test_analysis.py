"""What frames say, against runs worked out by hand."""

from __future__ import annotations

import itertools

import pytest

from tnt_notebook import telemetry
from tnt_notebook.telemetry import Recorder, sampling


@pytest.fixture
def frames():
    """2 s of tracing, ten steps of 0.5 s, 3 s of validation; rank 1 has half the samples."""
    recorder = Recorder(2, "fit", 1, start=0.0)
    seen = []
    for step in range(1, 11):
        now = 2.0 + step * 0.5
        recorder.step(1, step, 10, {"loss": 1 / step}, [50, 25], now)
        seen.append(recorder.frame(now))
    recorder.epoch_end(1, {"loss": 0.1, "val_loss": 0.2}, 10.0)
    return [*seen, recorder.frame(10.0, "finished")]


def test_duration_and_totals(frames):
    assert telemetry.duration(frames) == 10.0
    assert telemetry.total_samples(frames) == [500, 250]


def test_median_rate_leaves_out_tracing_and_pauses(frames):
    assert telemetry.median_rates(frames) == [100.0, 50.0]


def test_overall_rate_counts_everything(frames):
    assert telemetry.overall_rates(frames) == [50.0, 25.0]


def test_median_rate_of_a_run_of_one_frame_is_the_overall_rate(frames):
    assert telemetry.median_rates(frames[-1:]) == [50.0, 25.0]


def test_throughput_is_a_curve_per_rank(frames):
    times, rates = telemetry.throughput(frames)
    assert times == [frame["elapsed"] for frame in frames[1:]]  # one step has no rate yet
    assert [len(curve) for curve in rates] == [len(times)] * 2
    assert rates[0][0] == pytest.approx(100.0)
    assert rates[1][0] == pytest.approx(50.0)


def test_final_logs_are_the_last_epochs(frames):
    assert telemetry.final_logs(frames) == {"loss": 0.1, "val_loss": 0.2}


def test_final_logs_of_an_unfinished_epoch_are_the_latest(frames):
    assert telemetry.final_logs(frames[:4]) == {"loss": 0.25}


def test_no_frames_say_nothing():
    assert telemetry.duration([]) == 0.0
    assert telemetry.median_rates([]) == telemetry.overall_rates([]) == []
    assert telemetry.throughput([]) == ([], [])
    assert telemetry.final_logs([]) == {}
    assert telemetry.epoch_rows([]) == []


@pytest.mark.parametrize("count", [1, 9, 10, 11, 19, 100, 1001])
def test_thinned_keeps_the_limit_and_both_ends(count):
    kept = telemetry.thinned(list(range(count)), 10)
    assert len(kept) <= 10
    assert len(kept) >= min(count, 5)
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert kept == sorted(kept)


def test_a_list_that_grows_for_very_long_stays_even():
    kept: list[int] = []
    for number in range(10_000):
        kept = sampling.evenly([*kept, number], 100, float)
        assert len(kept) <= 100 and (kept[0], kept[-1]) == (0, number)
    gaps = [later - sooner for sooner, later in itertools.pairwise(kept)]
    assert max(gaps) <= 4 * 10_000 / 50 and len(kept) >= 25
