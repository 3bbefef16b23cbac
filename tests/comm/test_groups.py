"""Groups of ranks, made by splitting the world."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from tests.comm import sweep
from tnt_notebook import comm
from tnt_notebook.errors import PeerError


def collectives_of_pairs():
    w = comm.world()
    group = w.split(w.rank // 2)
    sweep.everything(group)
    return group.rank, group.size, group.members, repr(group)


def test_disjoint_groups_have_every_collective(ranks):
    outcomes = ranks.run(4, collectives_of_pairs)
    assert [outcome[:3] for outcome in outcomes] == [
        (0, 2, (0, 1)), (1, 2, (0, 1)), (0, 2, (2, 3)), (1, 2, (2, 3))
    ]  # fmt: skip
    assert outcomes[3][3] == "<Group: rank 1 of 2, ranks [2, 3] of the world>"


def uneven_groups():
    w = comm.world()
    group = w.split(-7 if w.rank == 2 else 5)
    return sweep.everything(group), group.members, group.node


@pytest.mark.parametrize("world", [None, {"transport": "mpi"}, {"nodes": (0, 0, 1, 1)}], ids=str)
def test_groups_may_differ_in_size_and_a_rank_may_be_alone(ranks, world):
    outcomes = ranks.run(4, uneven_groups, world=world)
    assert [ranks for _, ranks, _ in outcomes] == [(0, 1, 3), (0, 1, 3), (2,), (0, 1, 3)]
    assert len({digest for digest, ranks, _ in outcomes if len(ranks) == 3}) == 1
    nodes = {None: (0, 0, 0), "mpi": (0, 1, 3), (0, 0, 1, 1): (0, 0, 2)}
    assert outcomes[0][2] == nodes[next(iter(world.values())) if world else None]


def overlapping_groups():
    """Rows, columns and diagonals of ranks 0 1 / 2 3, mixed with the world's own calls."""
    w = comm.world()
    rows = w.split(w.rank // 2)
    columns = w.split(w.rank % 2)
    diagonals = w.split(w.rank in (0, 3))
    everyone = w.split(0)
    sums = []
    for i in range(50):
        # No group is used in the order in which another one is.
        for over in (rows, w, columns, everyone, diagonals, rows, w)[i % 5 :]:
            array = np.full(3 * i, 10.0**w.rank)
            total = over.allreduce(array)
            member = over.members
            assert (total == sum(10.0**r for r in member)).all()
            assert over.gather_numbers(w.rank) == list(member)
            sums.append(total.sum())
    return sums


def test_overlapping_groups_and_the_world_take_turns(ranks):
    ranks.run(4, overlapping_groups)


def groups_before_and_after_a_failure():
    w = comm.world()
    pair, trio = w.split(w.rank // 2), w.split(w.rank == 0)
    w.allreduce(np.ones(3))
    w.recover()  # nobody is left in a collective when rank 1 gives up
    if w.rank == 1:
        w.abort("rank 1: gives up")
    with pytest.raises(Exception, match="rank 1: gives up"):
        pair.barrier()
        trio.barrier()
        w.barrier()
    w.recover()
    later = w.split(w.rank % 2)
    return [over.gather_numbers(w.rank) for over in (pair, trio, later)]


def test_groups_survive_a_failure(ranks):
    assert ranks.run(4, groups_before_and_after_a_failure) == [
        [[0, 1], [0], [0, 2]],
        [[0, 1], [1, 2, 3], [1, 3]],
        [[2, 3], [1, 2, 3], [0, 2]],
        [[2, 3], [1, 2, 3], [1, 3]],
    ]


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
    faults = []

    def work(over, number):
        try:
            for i in range(100):
                array = np.full(1 + 97 * i, w.rank + number, "float32")
                member = over.members
                np.testing.assert_array_equal(
                    over.allreduce(array), np.full_like(array, sum(r + number for r in member))
                )
        except Exception as error:
            faults.append(error)
            w.abort(f"rank {w.rank}: {error}")

    threads = [
        threading.Thread(target=work, args=(over, number)) for number, over in enumerate(groups)
    ]
    random.Random(seed * 10 + w.rank).shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


@pytest.mark.parametrize(
    "world", [None, {"transport": "mpi"}, {"lanes": 2}, {"transport": "mpi", "lanes": 4}], ids=str
)
def test_groups_may_be_used_at_once_from_threads(ranks, world):
    for seed in range(3):
        ranks.run(4, groups_in_threads, seed, world=world)
