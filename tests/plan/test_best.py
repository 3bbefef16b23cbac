"""The best ways to train: none that a look at all of them would find is better."""

import math
import random
from dataclasses import replace

import pytest

from tnt_notebook.errors import ModelError
from tnt_notebook.plan.best import ANY_EXCHANGE, Way, best, ways
from tnt_notebook.plan.layouts import LayerPlan, MeshPlan
from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.plan.network import Level, Link, Network
from tnt_notebook.plan.outlook import Outlook
from tnt_notebook.plan.overheads import Overheads
from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.profile import Profile, Variable, divided, load_of, trained_so
from tnt_notebook.plan.search import loads_of
from tnt_notebook.plan.shares import shares_of

MESHES = "model=2", "height=3"


def in_parts(profile, mesh, rows, draw):
    """A rank's part of each call: all of it, or as much as each has; and how it is divided."""
    parts, layers = Mesh.parsed(mesh).size, []
    for seconds, uses in zip(profile.seconds, profile.uses, strict=True):
        is_divided, is_cut = draw.random() < 0.7, draw.random() < 0.5
        work_s = seconds / parts if is_divided else seconds
        bytes = sum(4 * profile.state_bytes(v) // (parts if is_cut else 1) // 3 for v in uses)
        layers.append(
            LayerPlan(
                "", "", {}, "", (), seconds, work_s, draw.expovariate(1e4), bytes,
                draw.randint(0, rows << 12), "", 0 if is_cut else bytes // 4,
            )
        )  # fmt: skip
    found = MeshPlan(
        f"data=1,{mesh}", parts, 1, rows, rows, tuple(layers), (), 0.0, 0, 0, 0.0, 0, Link(0, 1)
    )
    return divided(profile, layers), found


def outlook(seed, limit_bytes=math.inf, by_levels=False, meshes=(), exchange=None):
    """Of calls that take what the one before gives, or some earlier ones, and keep a value to
    themselves; and all ways to train it.

    Args:
        by_levels: whether ranks are on nodes of two, and messages take what the network takes.
        meshes: along which the work of a call may be divided.
    """
    draw = random.Random(seed)
    calls, batch_size = draw.randint(2, 6), draw.choice([1, 6, 16])
    weights = [draw.randint(0, 1 << draw.randint(2, 24)) for _ in range(calls)]
    by_sample = [[draw.expovariate(1e4) for _ in range(calls)] for _ in range(4)]
    fixed = [draw.expovariate(1e5) for _ in range(calls)]
    size = draw.randint(1, 1 << 16)
    message = Link(draw.expovariate(1e5), 10 ** draw.uniform(6, 11))

    def profile(rows):
        values = dict.fromkeys(range(calls + 1), rows * size)
        return Profile(
            *([f + rows * s for f, s in zip(fixed, part, strict=True)] for part in by_sample),
            {n: 2 * message.seconds(b) for n, b in values.items()}, values,
            [(n,) for n in range(calls)], [rows * draw.randint(0, size) for _ in range(calls)],
            [(n,) for n in range(calls)], [Variable(w, 4 * w) for w in weights], slots=2.0,
            working=[2 * rows * size] * calls,
        )  # fmt: skip

    takes = [{n} if draw.random() < 0.7 else {draw.randint(0, n), n - n % 2} for n in range(calls)]
    wiring = Wiring(tuple(((*t,), (n + 1,)) for n, t in enumerate(takes)), (0,), (calls,))
    link = Link(draw.expovariate(1e4), 10 ** draw.uniform(7, 11))
    names = [f"layer_{n}" for n in range(calls)]
    overheads = Overheads(*(draw.expovariate(1e5) for _ in range(4)), 1e-10, draw.uniform(1, 3))
    ranks = draw.choice([1, 2, 4, 6])
    if draw.random() < 0.3:
        overheads = replace(overheads, speeds=[draw.uniform(0.3, 1) for _ in range(ranks)])
    shares = shares_of(overheads.speeds)
    if by_levels:
        node = Link(draw.expovariate(1e5), 10 ** draw.uniform(8, 11))
        link = Network("", (Level("node", 2, node), Level("all", None, link, link.bytes_per_s)))
    found = Outlook(
        wiring, names, profile, batch_size, link, overheads, limit_bytes, meshes=meshes,
        exchange=exchange,
        divided=lambda rows, mesh: in_parts(profile(rows), mesh, rows, random.Random(seed)),
    )  # fmt: skip
    exchanges = ANY_EXCHANGE if exchange is None else (exchange,)
    return found, list(ways(ranks, batch_size, calls, meshes, exchanges, shares))


@pytest.mark.parametrize("meshes", [(), MESHES])
@pytest.mark.parametrize("by_levels", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_no_way_is_better_than_the_best(seed, by_levels, meshes):
    exchange = None if seed % 4 else "late:steps=2"
    one, among = outlook(seed, by_levels=by_levels, meshes=meshes, exchange=exchange)
    every = [one.plan(way) for way in among]
    limit = sorted(max(plan.rank_bytes) for plan in every)[len(every) // 2]
    for most in (math.inf, limit):
        fit = [plan for plan in every if max(plan.rank_bytes) <= most]
        found = best(among, (one.least_s, one.least_cut_s), one.judge, most, count=3)
        ranked = sorted((plan.step_s, max(plan.rank_bytes)) for plan in fit)[:3]
        assert [judged for _, judged in found.found] == ranked
        assert found.there_are == len(among) >= found.looked_at
    for way, plan in zip(among, every, strict=True):
        assert (
            replace(Way.of(plan), cut_at=()) == way and plan.ranks * plan.alike == among[0].replicas
        )
        for least_s in (one.least_s, one.least_cut_s):
            assert least_s(way) <= plan.step_s * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_all_runs_of_calls_ask_for_what_each_asks_for(seed):
    one, _ = outlook(seed)
    measured = one._measured(3)
    for profile in (measured, trained_so(measured, True, False), trained_so(measured, True, True)):
        loads = loads_of(one._wiring, profile)
        for begin in range(loads.calls):
            assert math.isinf(loads.seconds[begin, begin])
            for end in range(begin + 1, loads.calls + 1):
                load = load_of(one._wiring, profile, begin, end)
                assert loads.seconds[begin, end] == pytest.approx(load.seconds)
                for held in (1, 2, 5):
                    assert loads.bytes(held)[begin, end] == pytest.approx(load.bytes(held))


def test_shares_are_of_whole_copies_on_the_ranks_that_were_measured():
    assert all(way.shares == (3, 1) for way in ways(2, 32, 4, shares=(3, 1)) if way.stages == 1)
    assert not any(way.shares for way in ways(4, 32, 4, shares=(3, 1)))


@pytest.mark.parametrize("exchange", ["", None])
def test_what_does_not_fit_is_not_proposed_and_said(exchange):
    one, among = outlook(4, limit_bytes=1, exchange=exchange)
    free, _ = outlook(4)
    found = one.best(among[0].replicas * among[0].stages)
    assert not found.found and not found.refused
    assert found.too_large[0] == found.looked_at == found.there_are
    least = min(max(free.plan(way).rank_bytes) for way in among)
    if exchange is None:  # where a cut is looked for, ranks are taken to share out the state evenly
        assert 0.5 * least < found.too_large[1] <= least
    else:
        assert found.too_large[1] == least
    staged = next(way for way in among if way.stages > 1)
    with pytest.raises(ModelError, match="fits into 1 B a rank"):
        one.plan(staged)


def test_stages_on_different_nodes_wait_longer_for_their_messages():
    part, size = [1e-3, 1e-3], 1_000_000
    profile = Profile(
        part, part, part, part, {0: 0.0, 1: 9.0, 2: 0.0}, {0: 0, 1: size, 2: 0}, [(), ()],
        [0, 0], [(), ()], [],
    )  # fmt: skip
    wiring = Wiring((((0,), (1,)), ((1,), (2,))), (0,), (2,))
    node, fabric = Link(1e-6, 1e11), Link(1e-4, 1e9)

    def step_s(ranks_of_a_node, replicas):
        levels = Level("node", ranks_of_a_node, node), Level("fabric", None, fabric)
        one = Outlook(wiring, ["a", "b"], lambda rows: profile, 4, Network("", levels))
        way = Way(replicas, 2)
        assert one.judge(way).step_s == one.plan(way).step_s
        return one.plan(way).step_s

    # There and back; of two pipelines on nodes of three the second is on both.
    there_and_back = [2 * link.seconds(size) for link in (node, fabric)]
    assert step_s(2, 1) == step_s(3, 1) == pytest.approx(6e-3 + there_and_back[0])
    assert step_s(3, 2) - step_s(2, 2) == pytest.approx(there_and_back[1] - there_and_back[0])


def test_not_every_way_is_looked_at():
    calls, bytes = 16, 2_000_000

    def profile(rows):
        part = [1e-5 * rows] * calls
        values = dict.fromkeys(range(calls + 1), 4096 * rows)
        return Profile(
            part, part, part, part, dict.fromkeys(values, 1e-5), values,
            [(n,) for n in range(calls)], [0] * calls, [(n,) for n in range(calls)],
            [Variable(bytes // 4, bytes)] * calls,
        )  # fmt: skip

    wiring = Wiring(tuple(((n,), (n + 1,)) for n in range(calls)), (0,), (calls,))
    one = Outlook(wiring, ["layer"] * calls, profile, 512, Link(1e-5, 1e9))
    found = one.best(8)
    assert len(found.found) == 5 and found.looked_at < found.there_are


@pytest.mark.parametrize(
    ("way", "typed"),
    [
        (Way(4), ""),
        (Way(1, micro_batches=4, recompute=True), "--pipeline 1 --micro-batches 4 --recompute"),
        (Way(2, 2, "zb-h1", 8), "--pipeline 2 --micro-batches 8 --schedule zb-h1"),
        (Way(2, mesh="height=2"), "--mesh height=2"),
        (Way(2, exchange="sharded"), "--exchange sharded"),
        (Way(2, micro_batches=2, shares=(3, 1)), "--shares 3,1 --pipeline 1 --micro-batches 2"),
        (
            Way(1, 2, "1f1b", 4, cut_at=("b",)),
            "--pipeline 2 --micro-batches 4 --schedule 1f1b --cut-at b",
        ),
        (
            Way(2, 2, "zb-h1", 8, exchange="sharded"),
            "--exchange sharded --pipeline 2 --micro-batches 8 --schedule zb-h1",
        ),
        (
            Way(1, 2, "1f1b", 4, mesh="model=2"),
            "--mesh model=2 --pipeline 2 --micro-batches 4 --schedule 1f1b",
        ),
    ],
)
def test_a_way_is_typed(way, typed):
    assert way.typed == typed
