"""What came of a plan: how far off it was, in a sentence, and what the next one learns from it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_prediction import planned
from tnt_notebook.plan import measurements
from tnt_notebook.plan.best import Way
from tnt_notebook.plan.measurements import MOST_FITS
from tnt_notebook.plan.outcome import corrected, outcome_of, record, sentence
from tnt_notebook.plan.overheads import Overheads
from tnt_notebook.plan.prediction import InputPlan, with_input
from tnt_notebook.plan.promise import Promise, options_of

NOTHING = dict.fromkeys(("input", "work", "wait", "skew", "exchange", "other", "conversion"), 0.0)


def promised(**parts):
    """Of a step of whole copies on 2 ranks."""
    zeros = dict.fromkeys(("layers", "stages", "exchange", "overhead", "input"), 0.0)
    return Promise({}, 2, 32, sum(parts.values()), 1, 1.0, {**zeros, **parts}, 1.0, 1.2)


@pytest.mark.parametrize("read", [None, InputPlan("train", "", 0.5)])
def test_the_parts_of_a_promise_are_its_step(read):
    plan = planned(overheads=Overheads(step_s=3.0, action_s=0.5, busy=1.5), replicas=2)
    plan = plan if read is None else with_input(plan, read)
    promise = Promise.of(plan, options_of(Way.of(plan)))
    assert sum(promise.parts.values()) == pytest.approx(promise.step_s)
    assert (promise.parts["input"] > 0) == (read is not None)
    assert promise.parts["layers"] == pytest.approx(16 * (1 + 0.5 * promise.company))
    assert promise.busy == 1.5 and 1 / 3 < promise.company < 1


def test_the_part_that_is_off_most_is_said():
    promise = promised(layers=0.007, overhead=0.002)
    slow = outcome_of(promise, 0.0112, {**NOTHING, "work": 0.0091, "other": 0.0021})
    assert sentence(slow) == ("the plan was 24% short: layers took 9.1 ms where 7 ms were promised")
    fast = outcome_of(promise, 0.0075, {**NOTHING, "work": 0.007, "other": 0.0005})
    assert sentence(fast) == (
        "the plan was 17% long: Keras's loop, metrics and the optimizer took 0.5 ms where 2 ms "
        "were promised"
    )
    late = outcome_of(promise, 0.02, {**NOTHING, "work": 0.007, "skew": 0.011, "other": 0.002})
    assert "exchanging gradients, with waiting for the last rank, took 11 ms" in sentence(late)
    assert sentence(outcome_of(promise, 0.0098, NOTHING)) == ""
    assert sentence(outcome_of(promise, 0.018, NOTHING)) == "the plan was 100% short"


times = st.floats(1e-4, 10.0)
factors = st.floats(0.2, 5.0)


@given(
    st.floats(1.0, 15.0), st.floats(1.0, 15.0), factors, st.floats(0.1, 1.0), times, times,
    st.booleans(),
    st.just([0.0] * 12) | st.lists(st.floats(-0.02, 0.02), min_size=12, max_size=12),
)  # fmt: skip
def test_plans_come_nearer_to_what_fits_take(
    busy, truly, besides, company, layers_s, overhead_s, is_planned_again, noise
):
    """Ranks whose layers truly take so many times as long, and what is beside them; each fit is
    planned anew, or follows the first plan again."""

    def step(busy, beside):
        """Seconds of layers and of overhead, as planned or as true."""
        return layers_s * (1 + (busy - 1) * company), overhead_s * beside

    beside, errors, made, begun = 1.0, [], None, busy
    for wrong in noise:
        if made is None or is_planned_again:
            made = busy, beside
        layers, overhead = step(*made)
        promise = Promise(
            {}, 2, 32, layers + overhead, 1, 1.0,
            {"layers": layers, "stages": 0.0, "exchange": 0.0, "overhead": overhead, "input": 0.0},
            company, *made,
        )  # fmt: skip
        work, other = step(truly, besides)
        measured = {**NOTHING, "work": work * math.exp(wrong), "other": other * math.exp(wrong)}
        outcome = outcome_of(promise, sum(measured.values()), measured)
        errors.append(abs(math.log(sum(step(busy, beside)) / (work + other))))
        busy, beside = corrected(busy, beside, outcome)
        assert 1 <= busy <= 16 and 0.125 <= beside <= 8
    if company > 0.5:
        assert errors[-1] < 0.15
    if not any(noise):
        left = (1 - company / 2) ** len(noise)
        assert abs(math.log(busy / truly)) == pytest.approx(
            left * abs(math.log(begun / truly)), abs=1e-9
        )
        assert abs(math.log(beside / besides)) < 0.01


def test_what_samples_do_not_tell_is_not_corrected():
    known = (1.2, 1.0)
    promise = promised(layers=0.007, overhead=0.002)
    assert corrected(*known, outcome_of(promise, 0.02, NOTHING)) == known
    late = {**NOTHING, "work": 0.007, "other": 0.002, "input": 0.011}
    assert corrected(*known, outcome_of(promise, 0.02, late)) == pytest.approx(known)
    exchanging = promised(layers=0.007, overhead=0.002, exchange=0.01)
    slow = {**NOTHING, "work": 0.007, "other": 0.002, "exchange": 0.03}
    assert corrected(*known, outcome_of(exchanging, 0.039, slow)) == pytest.approx(known)
    assert corrected(1.0, 1.0, outcome_of(promise, 1e-5, {**NOTHING, "work": 1e-5}))[0] == 1.0


def test_the_record_of_some_ranks():
    assert record([]) == ""
    assert record([(0.1, 0.2)]) == (
        "1 fit by plan on these ranks: steps took 2.00 times what was promised."
    )
    assert record([(0.1, 0.094), (1.0, 1.12), (2.0, 2.06)]) == (
        "3 fits by plan on these ranks: steps took 0.94 to 1.12 times what was promised (median "
        "1.03)."
    )


def test_the_latest_fits_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert measurements.fits("here") == []
    for n in range(1, MOST_FITS + 3):
        measurements.add_fit("here", n, 2.0 * n)
    measurements.add_fit("elsewhere", 1.0, 1.0)
    assert measurements.fits("elsewhere") == [(1.0, 1.0)]
    kept = measurements.fits("here")
    assert len(kept) == MOST_FITS and (kept[0], kept[-1]) == ((3, 6.0), (MOST_FITS + 2, 132.0))
    path = measurements.file("fits")
    path.write_text(path.read_text().replace("[3, 6.0]", '["a", null]'))
    assert measurements.fits("here") == kept[1:]
