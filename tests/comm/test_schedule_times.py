"""Allreduces by their own schedules, message by message, beside the formulas that plans use."""

import math

import pytest

from tnt_notebook.comm.schedule_times import Rates, allreduce_s
from tnt_notebook.plan.allreduce import allreduce, halving, ring
from tnt_notebook.plan.network import Level, Link, Network

LINK = Link(2e-6, 12e9)
#: Nothing but messages takes time.
MESSAGES = Rates(
    latency_s=LINK.latency_s, bytes_per_s=LINK.bytes_per_s, port_bytes_per_s=math.inf,
    reduced_bytes_per_s=math.inf, copied_bytes_per_s=math.inf,
)  # fmt: skip
KB, MB = 1 << 10, 1 << 20
#: From this on, a ring cuts what goes from rank to rank in segments: two, or of 256 KB.
CUT = 32 * KB


@pytest.mark.parametrize("size", [64 * KB, 256 * KB, 4 * MB])
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16, 48, 100, 512, 1000, 4096])
def test_halving_takes_what_its_formula_says(ranks, size):
    timed = allreduce_s("rabenseifner", ranks, size // 4, MESSAGES)
    assert halving(LINK, ranks).seconds(size) == pytest.approx(timed, rel=0.01)


@pytest.mark.parametrize("size", [4 * KB, 256 * KB, 4 * MB])
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16, 48, 100, 256])
def test_a_ring_takes_what_its_formula_says_and_a_latency_for_each_further_segment(ranks, size):
    timed = allreduce_s("ring", ranks, size // 4, MESSAGES)
    expected = ring(LINK, ranks)
    part = size / ranks
    segments = 1 if part < CUT else max(2, math.ceil(part / (256 * KB)))
    more = (segments - 1) * expected.latency_s
    assert expected.seconds(size) + more == pytest.approx(timed, rel=0.02)


def on_nodes(nodes, ranks, node, fabric, port, size):
    """What a hierarchical allreduce takes, by its schedule and by the formula."""
    levels = Level("node", ranks, node), Level("fabric", None, fabric, port)
    rates = Rates(*node, *fabric, port, node.bytes_per_s, node.bytes_per_s)
    numbers = [rank // ranks for rank in range(nodes * ranks)]
    timed = allreduce_s("hierarchical", len(numbers), size // 4, rates, node=numbers)
    formula = allreduce(Network("a test", levels), len(numbers), 1, size)
    return timed, formula.seconds(size)


@pytest.mark.parametrize("size", [4 * MB, 16 * MB])
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("nodes", [2, 3, 4, 16, 32])
def test_where_ports_are_slow_schedule_and_formula_agree(nodes, ranks, size):
    # 10 Gbit/s Ethernet, between nodes whose ranks share memory.
    ethernet = Link(5e-6, 1.2e9)
    timed, formula = on_nodes(nodes, ranks, Link(1e-6, 100e9), ethernet, 1.2e9, size)
    assert formula == pytest.approx(timed, rel=0.1)


@pytest.mark.parametrize("size", [256 * KB, 4 * MB, 16 * MB])
@pytest.mark.parametrize("fabric", [Link(2e-6, 12e9), Link(14e-6, 25e9)], ids=str)
@pytest.mark.parametrize(("nodes", "most"), [(2, 1.5), (4, 2.1), (16, 3.4), (64, 8.8)])
def test_elsewhere_the_formula_is_the_least_that_the_schedule_takes(nodes, most, fabric, size):
    # The schedule cuts the vector in chunks, and goes around a ring between nodes: more messages
    # than halving needs, which counts where a message costs more than its bytes. So the formula is
    # what could be had, and the schedule takes up to `most` times as long.
    port = 4 * fabric.bytes_per_s if fabric.latency_s > 5e-6 else fabric.bytes_per_s
    timed, formula = on_nodes(nodes, 4, Link(0.3e-6, 10e9), fabric, port, size)
    assert 0.95 * formula < timed < most * formula
