"""Which step stands for others, of steps made by hand."""

import numpy as np
import pytest

from tests.telemetry.by_hand import events
from tnt_notebook.telemetry.events import FIRST
from tnt_notebook.telemetry.typical_step import MOST, begins_of, choose, lengths_of, steps_of


def chosen(*of_ranks, end_before_ns=None, is_begin=False):
    """By ranks that have made steps from and to these times, the same on all of them."""
    told = []
    for rows in of_ranks:
        steps = steps_of(events(*(("step", *row) for row in rows)))
        begins = begins_of(steps, end_before_ns)
        told.append(lengths_of(steps, begins))
    mean = np.mean(told, axis=0)
    own = [steps_of(events(*(("step", *row) for row in rows))) for rows in of_ranks]
    (found,) = {choose(mean, steps, is_begin) for steps in own}
    return found


def test_the_median_step_lasts_from_the_end_of_the_one_before_on_all_ranks():
    # The first one aside, they take 30, 20, 40 and 30, 22, 38.
    one = [(0, 100, FIRST), (105, 130), (131, 150), (170, 190)]
    other = [(0, 101, FIRST), (102, 131), (131, 153), (160, 191)]
    found = chosen(one, other)
    assert (found.back, found.which, found.among) == (2, "median", 3)
    assert found.seconds == pytest.approx(30e-9)
    assert chosen(one[:3]).back == 0  # of an even number, the shorter one
    # Of a look later, when the step before is known by its end only.
    assert chosen(one[2:], end_before_ns=130).seconds == pytest.approx(20e-9)
    assert chosen(one[2:3], end_before_ns=None).seconds == pytest.approx(19e-9)


def test_first_steps_are_chosen_only_where_there_is_no_other():
    first = (0, 1000, FIRST)
    assert chosen([first, (1000, 1010)]).which == "median"
    found = chosen([first], [first], is_begin=True)  # it has traced
    assert (found.which, found.among, found.seconds) == ("first", 0, pytest.approx(1e-6))
    epochs = [first, *((n, n + 10, FIRST) for n in (1010, 1030, 1050))]  # of one step each
    found = chosen(epochs, is_begin=True)
    assert (found.which, found.among, found.seconds) == ("first", 3, pytest.approx(1e-8))
    assert chosen([(5, 9, 1)]) is None  # of another phase
    assert chosen([]) is None


def test_a_step_that_a_rank_has_forgotten_is_none_for_all():
    rows = [(0, 30), (30, 50), (50, 60)]
    steps = steps_of(events(*(("step", *row) for row in rows)))
    whole = lengths_of(steps, begins_of(steps))
    partly = lengths_of(steps, begins_of(steps), whole_from_ns=45)
    assert choose((whole + whole) / 2, steps).back == 1
    assert choose((whole + partly) / 2, steps).back == 0


def test_of_very_many_steps_the_newest_are_looked_at():
    short = [(10 * n, 10 * n + 10) for n in range(1000)]
    found = chosen(short + [(20 * n, 20 * n + 20) for n in range(500, 500 + MOST)])
    assert found.among == MOST and found.seconds == pytest.approx(20e-9)
