"""Groups of ranks, and groups of these: everything that takes a communicator, on any."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from tests.comm.calls import everything
from tests.comm.threads import at_once
from tnt_notebook import comm
from tnt_notebook.comm import ops
from tnt_notebook.comm.channels import GRAPH
from tnt_notebook.errors import CommunicationError, PeerError


def made(plan):
    """The communicators of this rank, each with its members by the plan alone: what is split each
    time, the world (0) or what was made so many splits before, and the colors of the ranks."""
    w = comm.world()
    found = [(w, [*range(w.size)])]
    for back, color in plan:
        over, members = found[-back]
        same = [rank for rank in members if color[rank] == color[w.rank]]
        found.append((over.split(color[w.rank]), same))
    return found


def all_in_use(plan, fails):
    """Eager calls, ops in one graph, and buckets of all communicators, mixed."""
    w = comm.world()
    communicators = made(plan)

    @tf.function(autograph=False)
    def step(x):
        results = []
        with ops.channels():
            for over, _ in communicators:
                to, source = (over.rank + 1) % over.size, (over.rank - 1) % over.size
                summed = ops.allreduce([x], over=over)
                gathered = ops.allgather(tf.repeat(x[:, None], w.rank, 0), over=over)
                results.append((summed, gathered, ops.clock(over=over)))
            for number, (over, _) in enumerate(communicators):
                to, source = (over.rank + 1) % over.size, (over.rank - 1) % over.size
                if over.size == 1:
                    continue
                # One channel a sender: of this communicator's own, by its rank in the world.
                channel = GRAPH.part(number + 1, 16)
                with ops.channels(channel.only(w.rank)):
                    ops.send(x * 10, to, over=over)
                with ops.channels(channel.only(over.members[source])):
                    results[number] += (ops.receive([2], tf.float32, source, over=over),)
        return results

    def check():
        inputs = np.array([[1 + 3 * rank, 10.0**rank] for rank in range(w.size)], np.float32)
        own = inputs[w.rank]
        outcomes = step(tf.constant(own))
        for (over, members), (summed, gathered, _, *received) in zip(
            communicators, outcomes, strict=True
        ):
            expected = inputs[members].sum(axis=0)
            assert list(over.members) == members and members[over.rank] == w.rank
            np.testing.assert_array_equal(over.allreduce(own), expected)
            np.testing.assert_array_equal(over.allgather(own), inputs[members].ravel())
            np.testing.assert_array_equal(over.broadcast(own, over.size - 1), inputs[members[-1]])
            np.testing.assert_array_equal(summed[0], expected)
            rows = [np.repeat(inputs[rank][:, None], rank, 0) for rank in members]
            np.testing.assert_array_equal(gathered, np.concatenate(rows))
            if received:
                source = members[over.rank - 1]
                np.testing.assert_array_equal(received[0], 10 * inputs[source])
            bucket = over.bucket(2)
            bucket.array[:] = own
            np.testing.assert_array_equal(bucket.allreduce(), expected)

    check()
    if fails is not None:
        w.recover()  # nobody is left in a collective when the rank gives up
        if w.rank == fails:
            w.abort(f"rank {w.rank}: gives up")
        with pytest.raises(Exception, match="gives up"):
            w.barrier()
        w.recover()
        check()
        over, members = communicators[-1]
        last = over.split(0)
        assert list(last.members) == members
        assert last.gather_numbers(w.rank) == members


ROWS, COLUMNS = (0, 0, 1, 1), (0, 1, 0, 1)


@pytest.mark.parametrize(
    ("fails", "world"),
    [(None, None), (3, None), (3, {"nodes": (0, 0, 1, 1)})],
    ids=["all is well", "a rank fails", "a rank fails on two nodes"],
)
@pytest.mark.parametrize(
    "plan",
    [
        [(0, ROWS)],
        [(0, ROWS), (1, COLUMNS)],
        [(0, ROWS), (1, COLUMNS), (0, (0, 1, 1, 0)), (1, (0, 0, 0, 1))],
    ],
    ids=["groups", "groups of groups", "groups that overlap"],
)
def test_communicators_of_communicators_are_what_numpy_says(ranks, plan, fails, world):
    ranks.run(4, all_in_use, plan, fails, world=world)


def split_while_others_do_something_else():
    """Ranks 0 and 1 make groups and buckets of their own; then all make one together."""
    w = comm.world()
    half = w.split(w.rank // 2)
    own = [half.split(half.rank) if w.rank < 2 else None for _ in range(3)]
    if w.rank < 2:
        half.bucket(3)
    quarter = half.split(1 - half.rank)
    everyone = w.split(0)
    assert everyone.gather_numbers(w.rank) == [0, 1, 2, 3]
    assert quarter.gather_numbers(w.rank) == [w.rank]
    return everyone._channel, len({o._channel for o in own if o} | {quarter._channel})


def test_ranks_that_take_no_part_in_a_split_agree_with_the_others_later(ranks):
    found = ranks.run(4, split_while_others_do_something_else)
    assert len({channel for channel, _ in found}) == 1
    assert [different for _, different in found] == [4, 4, 1, 1]


def a_peer_is_missing():
    """Rank 3 of the world is rank 1 of its group, and does not come."""
    w = comm.world()
    pair = w.split(w.rank % 2)
    w.barrier()
    said = ""
    if w.rank == 1:
        w.set_timeout(0.2)
        with pytest.raises(CommunicationError) as error:
            pair.allreduce(np.ones(3))
        said = str(error.value)
        w.set_timeout(60)
    w.recover()
    return said


def test_errors_of_a_group_name_ranks_of_the_world(ranks):
    said = ranks.run(4, a_peer_is_missing)
    assert "for rank 3 in allreduce of float64[3]" in said[1]


def of_groups(colors):
    w = comm.world()
    group = w.split(colors[w.rank])
    return everything(group), group.rank, group.members, group.node, repr(group)


@pytest.mark.parametrize(
    ("world", "nodes"),
    [(None, (0, 0, 0)), ({"transport": "mpi"}, (0, 1, 3)), ({"nodes": (0, 0, 1, 1)}, (0, 0, 2))],
)
def test_groups_have_every_collective_and_a_rank_may_be_alone(ranks, world, nodes):
    found = ranks.run(4, of_groups, (5, 5, -7, 5), world=world)
    assert [(own, members) for _, own, members, *_ in found] == [
        (0, (0, 1, 3)), (1, (0, 1, 3)), (0, (2,)), (2, (0, 1, 3))
    ]  # fmt: skip
    assert len({digest for digest, _, members, *_ in found if len(members) == 3}) == 1
    assert found[0][3] == nodes


def test_groups_work_side_by_side(ranks):
    *_, last = ranks.run(4, of_groups, (0, 0, 1, 1))
    assert last[1:3] == (1, (2, 3))
    assert last[4] == "<Group: rank 1 of 2, ranks [2, 3] of the world>"


def failure_amid_a_split():
    """Rank 2 fails before a split, others may or may not have made their group."""
    w = comm.world()
    if w.rank == 2:
        w.abort("rank 2: gives up")
    else:
        try:
            w.bucket(5)
            w.split(0)
        except PeerError:
            pass
    w.recover()
    group, bucket = w.split(w.rank % 2), w.bucket(2)
    bucket.array[:] = 1
    return group.gather_numbers(w.rank), bucket.allreduce().tolist()


def test_groups_and_buckets_agree_after_some_ranks_have_made_more_of_them(ranks):
    for _ in range(5):
        outcomes = ranks.run(3, failure_amid_a_split)
        assert outcomes == [([0, 2], [3, 3]), ([1], [3, 3]), ([0, 2], [3, 3])]


def groups_in_threads(seed):
    """Each group has a thread of its own; the ranks start them in different order."""
    w = comm.world()
    groups = [w.split(w.rank * k // 4) for k in (1, 2, 4)] + [w.split(w.rank % 2), w]

    def work(over, number):
        total = sum(rank + number for rank in over.members)
        for i in range(100):
            array = np.full(1 + 97 * i, w.rank + number, "float32")
            np.testing.assert_array_equal(over.allreduce(array), np.full_like(array, total))

    with at_once([partial(work, over, i) for i, over in enumerate(groups)], seed):
        pass


@pytest.mark.parametrize(
    "world", [None, {"transport": "mpi"}, {"lanes": 2}, {"transport": "mpi", "lanes": 4}], ids=str
)
def test_groups_may_be_used_at_once_from_threads(ranks, world):
    for seed in range(3):
        ranks.run(4, groups_in_threads, seed, world=world)
