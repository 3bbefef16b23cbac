"""What follows from the runs of a study of scaling."""

import pytest

from tnt_notebook.telemetry import Recorder
from tnt_notebook.telemetry.breakdown import Breakdown
from tnt_notebook.telemetry.scaling import Question, Run, Target, rows_of, run_of, unfit

QUESTION = Question((1, 2, 4), rounds=3)


def a_run(ranks: int, mode: str, round: int, rate: float, batch: int = 64, **more: object) -> Run:
    known = {
        "ranks": ranks, "mode": mode, "round": round, "batch": batch, "step_s": batch / rate,
        "samples_per_s": rate, "epoch_s": None, "first_step_s": 1.0, "solution_s": None,
        "energy_j": None, "joules_per_sample": None, "logs": {}, "limit": "", "parts": {},
        "shared_input": False,
    }  # fmt: skip
    return Run(**{**known, **more})


def frames(steps: int = 4, epochs: int = 2, energy: float | None = None) -> list:
    """A fit of batches of 32 on two ranks: first steps of 1 s, then of 0.25 s."""
    now = 100.0
    recorder = Recorder(2, "fit", epochs, start=now)
    found = [recorder.frame(now)]
    for epoch in range(1, epochs + 1):
        recorder.epoch_begin(now)
        for step in range(1, steps + 1):
            now += 1.0 if step == 1 else 0.25
            recorder.step(epoch, step, steps, {}, [16, 16], now)
            found.append(recorder.frame(now))
        now += 0.5  # of validation
        recorder.epoch_end(epoch, {"loss": 1 / epoch, "acc": 0.4 * epoch}, now)
        found.append(recorder.frame(now))
    recorder.breakdown([Breakdown(0.0, 0.1, 0.0, 0.0, 0.1, 0.05)] * 2, 0.25)
    recorder.seen(energy=energy)
    return [*found, recorder.frame(now + 9, "finished")]


def test_a_run_is_told_by_its_median_step_and_not_by_its_first_ones():
    question = Question((1, 2))
    run = run_of(frames(energy=512.0), 2, "strong", 1, question, first_step_s=3.0)
    assert (run.batch, run.step_s, run.samples_per_s) == (32, 0.25, 128.0)
    assert run.epoch_s == 4 * 0.25 and run.first_step_s == 3.0
    # From the end of the first step to that of the last epoch, and a step for the first one.
    assert run.solution_s == pytest.approx(0.25 + (2 * (1 + 3 * 0.25 + 0.5) - 1))
    assert (run.energy_j, run.joules_per_sample) == (512.0, 2.0)
    assert run.parts["exchange"] == pytest.approx(0.1) and run.limit
    assert run_of([], 2, "strong", 1, question, 0.0) is None
    assert run_of(frames(steps=1), 2, "strong", 1, question, 0.0) is not None  # it was looked at
    cut = Question((1, 2), steps=4)
    run = run_of(frames(), 2, "strong", 1, cut, 0.0)
    assert run.epoch_s is None and run.solution_s is None


@pytest.mark.parametrize(
    ("target", "seconds"),
    [
        (Target("acc", 0.3, True), 0.25 + 3 * 0.25 + 0.5),
        (Target("loss", 0.5, False), 0.25 + 2 * (1 + 3 * 0.25 + 0.5) - 1),
        (Target("acc", 0.9, True), None),
        (Target("f1", 0.9, True), None),
    ],
)
def test_the_time_to_solution_is_that_to_the_target(target, seconds):
    run = run_of(frames(), 2, "strong", 1, Question((1, 2), until=target), 0.0)
    assert run.solution_s == (None if seconds is None else pytest.approx(seconds))


def test_rows_are_of_ratios_within_rounds():
    # The machine becomes twice as fast with each round, for all ranks.
    runs = [
        a_run(ranks, mode, round, rate * 2.0**round, 64 * (ranks if mode == "weak" else 1))
        for round, share in ((1, 0.8), (2, 0.9), (3, 0.7))
        for ranks, mode, rate in (
            (1, "strong", 100.0), (2, "strong", 200 * share), (2, "weak", 200.0),
            (4, "strong", 400 * share**2), (4, "weak", 400 * share),
        )
    ]  # fmt: skip
    rows = rows_of(runs, QUESTION)
    assert [(row["mode"], row["ranks"]) for row in rows] == [
        ("strong", 1), ("strong", 2), ("strong", 4), ("weak", 1), ("weak", 2), ("weak", 4),
    ]  # fmt: skip
    one, two, four, weak_one, weak_two, weak_four = rows
    assert one["efficiency"] == weak_one["efficiency"] == weak_two["efficiency"] == 1.0
    assert (two["efficiency"], two["low_efficiency"], two["high_efficiency"]) == pytest.approx(
        (0.8, 0.7, 0.9)
    )
    assert four["speedup"] == pytest.approx(4 * 0.64) and weak_four["batch"] == 256
    assert weak_four["efficiency"] == pytest.approx(0.8)
    assert one["samples_per_s"] == 400.0 and one["steps_per_s"] == 400 / 64
    assert two["rounds"] == 3 and two["energy"] == "" and two["joules_per_sample"] is None
    # Interrupted in the last round: what is there counts, each with its own.
    assert rows_of(runs[:12], QUESTION)[1]["rounds"] == 3
    assert rows_of(runs[:11], QUESTION)[1]["rounds"] == 2
    assert rows_of([], QUESTION) == []


def test_energy_is_counted_or_estimated_by_watts_and_said_to_be():
    asked = Question((1, 2), modes=("strong",), rounds=1, watts=50.0)
    runs = [a_run(1, "strong", 1, 100.0, solution_s=10.0), a_run(2, "strong", 1, 160.0)]
    one, two = rows_of(runs, asked)
    assert (one["energy"], one["energy_j"], one["joules_per_sample"]) == ("estimate", 500.0, 0.5)
    assert two["energy_j"] is None and two["joules_per_sample"] == 100 / 160
    counted = a_run(1, "strong", 1, 100.0, energy_j=7.0, joules_per_sample=0.1)
    (row,) = rows_of([counted], asked)
    assert (row["energy"], row["energy_j"]) == ("counted", 7.0)


def test_a_batch_that_does_not_scale_as_it_should_is_found():
    base = a_run(1, "strong", 1, 100.0)
    assert not unfit(base, [], QUESTION) and not unfit(base, [base], QUESTION)
    assert not unfit(a_run(2, "strong", 1, 100.0), [base], QUESTION)
    assert not unfit(a_run(2, "weak", 1, 100.0, 128), [base], QUESTION)
    assert (
        unfit(a_run(2, "weak", 1, 100.0), [base], QUESTION)
        == "weak scaling on 2 ranks needs batches of 128 samples, and the fit has 64"
    )
    assert "strong scaling on 4 ranks needs" in unfit(
        a_run(4, "strong", 1, 1.0, 256), [base], QUESTION
    )


def test_on_the_fewest_ranks_both_modes_are_the_same_fit():
    assert QUESTION.turns() == [
        (1, "strong"), (2, "strong"), (2, "weak"), (4, "strong"), (4, "weak"),
    ]  # fmt: skip
    assert Question((2, 4), modes=("weak",)).turns() == [(2, "weak"), (4, "weak")]
