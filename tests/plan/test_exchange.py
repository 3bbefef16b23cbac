"""Gradients that ranks add up while backward goes on: buckets by hand, and of any gradients."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_prediction import CHAIN, PROFILE
from tnt_notebook.errors import ModelError
from tnt_notebook.plan.buckets import MIB
from tnt_notebook.plan.exchange import SIZES_MB, Gradient, exchange_of, exchange_s, gradients_of
from tnt_notebook.plan.families import make
from tnt_notebook.plan.network import Link
from tnt_notebook.plan.partition import partition
from tnt_notebook.plan.profile import Variable
from tnt_notebook.plan.schedule import Action
from tnt_notebook.plan.simulate import Span, Timeline, simulate
from tnt_notebook.plan.stages import costs_of
from tnt_notebook.plan.traffic import is_planned, traffic_of

#: Of two ranks an allreduce takes a second for a MiB.
SECOND = Link(0.0, MIB)


def step(forward=1.0, backward=8.0):
    spans = (
        Span(0, Action("F", 0, 0), 0.0, forward),
        Span(0, Action("B", 0, 0), forward, forward + backward),
    )
    return Timeline("", 1, 1, spans)


def of_two(gradients, link=SECOND, timeline=None, exchange=""):
    """Seconds that two ranks make a step longer by."""
    made = timeline or step()
    return exchange_s(made, [0], [gradients], 2, 2, link, traffic_of(exchange))


def test_gradients_are_there_as_their_calls_go_back():
    # Four calls that take 3 s of backward each; the first weight is there last.
    parts = [(g.bytes, g.part) for g in gradients_of(PROFILE, 0, 4)]
    assert parts == [(40, 1.0), (40, 0.75), (40, 0.5), (40, 0.25)]
    assert [g.part for g in gradients_of(PROFILE, 2, 4)] == [1.0, 0.5]


def test_what_is_there_early_is_hidden():
    # From 1 s to 9 s backward; at 3 s there are 4 MiB, until 7 s, and 1 MiB in the end.
    late, early = Gradient(MIB, part=1.0), Gradient(4 * MIB, part=0.25)
    assert of_two([late, early]) == 1.0
    # 8 MiB that are there at 3 s: until 11 s, and the last one until 12 s.
    assert of_two([late, Gradient(8 * MIB, part=0.25)]) == 3.0
    assert of_two([late]) == 1.0 and exchange_s(step(), [0], [[late]], 1, 1, SECOND) == 0.0


def test_of_owners_half_comes_in_the_end():
    # Half of 4 MiB goes on behind backward, and the other half follows it.
    assert of_two([Gradient(4 * MIB, part=0.25)], exchange="sharded") == 2.0


def test_half_as_many_bytes_travel_as_bfloat16():
    assert of_two([Gradient(4 * MIB)], exchange="allreduce:wire=bfloat16") == 2.0
    assert of_two([Gradient(4 * MIB)], exchange="allreduce:wire=float32") == 4.0


def test_what_is_late_has_a_whole_step():
    assert of_two([Gradient(9 * MIB)], exchange="late") == 0.0
    assert of_two([Gradient(11 * MIB)], exchange="late:steps=3") == 2.0
    assert of_two([Gradient(11 * MIB)], exchange="late:wire=float16,warmup=9") == 0.0


def test_ranks_of_a_mesh_add_up_their_part_beside_replicas():
    # 1 of 3 MiB all four ranks add up, which send 1.5 times that; the others replicas.
    one = [Gradient(3 * MIB, summed=MIB)]
    assert exchange_s(step(), [0], [one], 2, 4, SECOND) == 2.0 + 1.5


def test_what_plans_do_not_know_is_said():
    for name in ("topk:ratio=0.1", "mine"):
        assert not is_planned(name)
        with pytest.raises(ModelError, match="do not know what the exchange (topk|mine) takes"):
            traffic_of(name)
    with pytest.raises(ModelError, match="'late:steps=x': an option cannot be so"):
        traffic_of("late:steps=x")


def chosen(link, profile=PROFILE, exchange=""):
    """The exchange of two whole copies of four calls, where buckets may have any size."""
    schedule, cut = make("1f1b", 1, 1), partition(CHAIN, [])
    timeline = simulate(schedule, costs_of(profile, cut), cut.pairs())
    return exchange_of(profile, schedule, cut, timeline, 2, 2, link, exchange, SIZES_MB)


def test_larger_buckets_where_messages_are_slow_and_smaller_where_bytes_are():
    heavy = replace(PROFILE, variables=[Variable(MIB, 4 * MIB)] * 5)
    usual = chosen(Link(0.0, 1e12), heavy)
    assert usual.exchange == "" and usual.seconds < 1e-3
    # Four messages of 3 s, of which three are behind backward; and two of them.
    slow = chosen(Link(3.5, 1e12), heavy)
    assert slow.exchange == "allreduce:bucket_mb=16"
    assert chosen(Link(3.5, 1e12), heavy, "sharded").exchange == "sharded:bucket_mb=16"
    schedule, cut = make("1f1b", 1, 1), partition(CHAIN, [])
    timeline = simulate(schedule, costs_of(heavy, cut), cut.pairs())
    fixed = exchange_of(heavy, schedule, cut, timeline, 2, 2, Link(3.5, 1e12))
    assert slow.seconds < fixed.seconds and fixed.exchange == ""


@given(
    st.lists(st.tuples(st.integers(1, 1 << 26), st.floats(0, 1)), min_size=1, max_size=30),
    st.floats(0, 1),
    st.floats(0, 100),
    st.sampled_from(["", "sharded"]),
)
def test_an_exchange_takes_no_more_than_after_backward_and_no_less_than_its_last_gradient(
    given, latency_s, backward, exchange
):
    gradients = [Gradient(bytes, part=part) for bytes, part in given]
    link = Link(latency_s, 1e7)
    hidden = of_two(gradients, link, step(1.0, backward), exchange)
    after = of_two(gradients, link, step(1.0 + backward, 0.0), exchange)
    assert 0 <= hidden <= after * (1 + 1e-9) + 1e-9
    all_of_it = sum(link.seconds(g.bytes) for g in gradients)
    assert after <= all_of_it * (1 + 1e-9)
    latest = max(gradients, key=lambda g: g.part)
    assert hidden >= link.seconds(latest.bytes) - (1 - latest.part) * backward - 1e-9
    late = of_two(gradients, link, step(1.0, backward), "late")
    assert late <= hidden
