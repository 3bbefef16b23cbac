"""What frames say, against runs worked out by hand."""

import itertools

import pytest

from tnt_notebook import telemetry
from tnt_notebook.telemetry import Recorder, main_run, runs, sampling
from tnt_notebook.telemetry.breakdown import NOTHING


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


def test_rates_while_training_leave_out_what_is_no_step_and_that_of_the_whole_run_nothing(
    frames,
):
    of_ranks = [750 / 7.0 * 2 / 3, 750 / 7.0 / 3]
    assert telemetry.rates(frames) == telemetry.rates(frames[-1:]) == pytest.approx(of_ranks)
    assert telemetry.samples_per_s(frames) == pytest.approx(750 / 7.0)
    assert telemetry.median_samples_per_s(frames) == 150.0
    assert telemetry.whole_run_samples_per_s(frames) == 75.0


def test_the_parts_of_a_run_are_all_of_it(frames):
    assert telemetry.spent(frames) == {
        "steps": 9, "steps_s": 4.5, "first_steps": 1, "first_steps_s": 2.5,
    }  # fmt: skip
    assert telemetry.duration(frames) == 4.5 + 2.5 + 3.0  # the validation


def test_a_run_with_few_samples_is_judged_by_the_step_that_stands_for_all_of_it():
    """The first sample of a short run may be of two steps, whose input had been read ahead."""
    read_ahead, usual = (NOTHING._replace(input=s, work=1e-3, other=1e-3) for s in (0.0, 0.1))
    recorder, frames = Recorder(1, "fit", 1, start=0.0), []
    for now, breakdown, state in (
        (1.0, read_ahead, "running"), (3.0, usual, "running"), (3.1, usual, "finished"),
    ):  # fmt: skip
        recorder.step(1, 1, 10, {"loss": 1.0}, [8], now)
        recorder.breakdown([breakdown], breakdown.step)
        frames.append(recorder.frame(now, state))
    assert telemetry.breakdowns(frames) == [usual]
    assert telemetry.limit_of(frames).startswith("Ranks wait for input during 98%")
    assert telemetry.limit_of(frames[:2]) == ""


def test_throughput_is_a_curve_per_rank(frames):
    times, rates = telemetry.throughput(frames)
    assert times == [frame["elapsed"] for frame in frames[1:]]  # one step has no rate yet
    assert [len(curve) for curve in rates] == [len(times)] * 2
    assert [curve[0] for curve in rates] == pytest.approx([100.0, 50.0])


def test_final_logs_are_those_of_the_last_epoch_or_else_the_latest(frames):
    assert telemetry.final_logs(frames) == {"loss": 0.1, "val_loss": 0.2}
    assert telemetry.final_logs(frames[:4]) == {"loss": 0.25}


def test_no_frames_say_nothing():
    assert telemetry.duration([]) == 0.0
    assert telemetry.rates([]) == []
    assert telemetry.median_samples_per_s([]) == 0.0
    assert telemetry.samples_per_s([]) == telemetry.whole_run_samples_per_s([]) == 0.0
    assert telemetry.spent([]) is None
    assert telemetry.throughput([]) == ([], [])
    assert telemetry.final_logs([]) == {}
    assert telemetry.epoch_rows([]) == []


@pytest.mark.parametrize("count", [1, 9, 10, 11, 19, 100, 1001])
def test_thinned_keeps_the_limit_and_both_ends(count):
    kept = telemetry.thinned(list(range(count)), 10)
    assert min(count, 5) <= len(kept) <= 10
    assert (kept[0], kept[-1]) == (0, count - 1) and kept == sorted(kept)


def test_a_list_that_grows_for_very_long_stays_even():
    kept: list[int] = []
    for number in range(10_000):
        kept = sampling.evenly([*kept, number], 100, float)
        assert len(kept) <= 100 and (kept[0], kept[-1]) == (0, number)
    gaps = [later - sooner for sooner, later in itertools.pairwise(kept)]
    assert max(gaps) <= 4 * 10_000 / 50 and len(kept) >= 25


def test_runs_are_told_apart_even_where_one_is_within_another():
    fit, predict = Recorder(1, "fit", start=1.0), Recorder(1, "predict", start=2.0)
    frames = [fit.frame(1.5), predict.frame(2.5), fit.frame(3.0), predict.frame(2.7, "finished")]
    assert runs(frames) == [[frames[0], frames[2]], [frames[1], frames[3]]]


def test_the_main_run_is_the_last_fit_or_else_the_last():
    first, second = Recorder(1, "fit", start=1.0), Recorder(1, "fit", start=2.0)
    after = Recorder(1, "evaluate", start=3.0)
    frames = [first.frame(1.5), second.frame(2.5), after.frame(3.5)]
    assert main_run(frames) == [frames[1]]
    assert main_run(frames[2:]) == [frames[2]]
    assert main_run([]) == []
