"""Closed formulas of an allreduce; beside schedules: ``tests/comm/test_schedule_times.py``."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnt_notebook.plan.allreduce import allreduce, halving, ring
from tnt_notebook.plan.network import Level, Link, Network

NODE, FABRIC = Link(1e-6, 100e9), Link(5e-6, 25e9)
SIZES = st.integers(1, 1 << 28)


def network(ranks=4, port=math.inf, node=NODE, fabric=FABRIC):
    return Network("a test", (Level("node", ranks, node), Level("fabric", None, fabric, port)))


def test_two_ranks_send_half_of_the_vector_twice():
    assert ring(FABRIC, 2) == halving(FABRIC, 2) == Link(1e-5, 25e9)


def test_of_no_power_of_two_some_ranks_go_in_pairs():
    # Halves there, a half handed over, and all of it back: twice the vector, in three messages.
    five, four = halving(FABRIC, 5), halving(FABRIC, 4)
    assert five.latency_s == pytest.approx(four.latency_s + 3 * FABRIC.latency_s)
    assert five.seconds(1e9) - four.seconds(1e9) == pytest.approx(3 * 5e-6 + 2 * 1e9 / 25e9)


@given(st.integers(2, 70_000), SIZES)
def test_no_algorithm_sends_less_than_there_must_be_sent(ranks, size):
    least = 2 * (ranks - 1) / ranks * size / FABRIC.bytes_per_s
    for made in (ring(FABRIC, ranks), halving(FABRIC, ranks)):
        assert made.seconds(size) >= least * (1 - 1e-12)


@given(st.integers(2, 5000), SIZES)
def test_on_one_level_the_faster_algorithm_is_taken(ranks, size):
    flat = Network("one level", (Level("network", None, FABRIC),))
    faster = min(made(FABRIC, ranks).seconds(size) for made in (ring, halving))
    assert allreduce(flat, ranks, 1, size).seconds(size) == pytest.approx(faster)


@given(st.integers(2, 8), SIZES)
def test_ranks_of_a_node_need_no_network(ranks, size):
    inside = Network("one level", (Level("node", None, NODE),))
    assert allreduce(network(8), ranks, 1, size) == allreduce(inside, ranks, 1, size)


@given(st.integers(2, 5000), st.integers(4, 64), SIZES)
def test_ranks_on_a_node_each_share_its_port_with_all_others_there(ranks, apart, size):
    flat = Network("one level", (Level("fabric", None, Link(5e-6, 10e9)),))
    shared = allreduce(network(4, port=40e9), ranks, apart, size)
    assert shared == pytest.approx(allreduce(flat, ranks, 1, size))


def test_ranks_of_a_node_share_the_vector_between_nodes():
    # A reduce-scatter and an allgather in the node, and a quarter of the vector between two nodes.
    link = allreduce(network(), 8, 1, 4 << 20)
    assert link.latency_s == pytest.approx(4 * 1e-6 + 2 * 5e-6)
    assert link.bytes_per_s == pytest.approx(min(100e9 / 1.5, 4 * 25e9))
    assert allreduce(network(port=10e9), 8, 1, 4 << 20).bytes_per_s == pytest.approx(10e9)


@given(st.integers(2, 5000), st.integers(1, 16), st.floats(1e8, 1e12), SIZES)
def test_a_faster_port_never_takes_longer(ranks, apart, port, size):
    slow = allreduce(network(4, port), ranks, apart, size).seconds(size)
    fast = allreduce(network(4, 2 * port), ranks, apart, size).seconds(size)
    assert 0 < fast <= slow * (1 + 1e-12)


def test_of_a_link_it_is_what_was_measured_with_nearly_twice_the_bytes():
    assert allreduce(Link(1e-3, 1e9), 4) == Link(1e-3, 1e9 * 4 / 6)
