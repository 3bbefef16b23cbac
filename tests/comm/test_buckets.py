"""Allreduce in place, in memory that the ranks of a node share."""

import gc
import hashlib
from functools import partial

import numpy as np
import pytest

from tests.comm.calls import algorithms
from tests.comm.reference import (
    RANKS,
    TYPES,
    assert_reduced,
    dtype_of,
    noise,
    ops_of,
    small_integers,
)
from tests.comm.threads import at_once
from tests.support import rank_nodes
from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError, PeerError


def in_place(dtype, counts):
    w = comm.world()
    bits = []
    for count in counts:
        bucket = w.bucket(count, dtype_of(dtype))
        array = bucket.array
        assert array.shape == (count,) and array.dtype == dtype_of(dtype)
        inputs = [small_integers(rank, (count,), dtype) for rank in range(w.size)]
        for op in ops_of(dtype):
            for algorithm in algorithms("allreduce", w):
                array[:] = inputs[w.rank]
                assert bucket.allreduce(op, algorithm=algorithm) is array
                assert_reduced(array, inputs, op, f"{op} of {dtype}[{count}] by {algorithm}")
                bits.append(array.tobytes())
    return hashlib.sha256(b"".join(bits)).hexdigest()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", RANKS)
def test_buckets_are_reduced_where_they_are_by_every_algorithm(ranks, n, dtype):
    assert len(set(ranks.run(n, in_place, dtype, (0, 1, 5, 1000, 30_011)))) == 1


@pytest.mark.parametrize(
    "world",
    [{"transport": "mpi"}, {"nodes": (0, 0, 1, 1)}, {"nodes": (0, 1, 1, 1)}, {"lanes": 3}],
    ids=str,
)
def test_buckets_over_every_kind_of_link(ranks, world):
    assert len(set(ranks.run(4, in_place, "float32", (1, 200_003), world=world))) == 1


def of_growing_size():
    """What a training step with larger and larger tensors would do."""
    w = comm.world()
    for count in (1, 100, 10_000, 1_000_000, 2_500_000):
        bucket = w.bucket(count)
        for step in range(5):
            bucket.array[:] = np.arange(count, dtype="float32") % 7 + step + w.rank
            expected = w.size * (np.arange(count, dtype="float32") % 7 + step)
            expected += sum(range(w.size))
            np.testing.assert_array_equal(bucket.allreduce(), expected)


@pytest.mark.parametrize("n", [2, 4])
def test_buckets_of_growing_size(ranks, n):
    ranks.run(n, of_growing_size)


def scaled():
    w = comm.world()
    bucket = w.bucket(3)
    bucket.array[:] = np.nan if w.rank == 0 else [1, 2, w.rank]
    results = [bucket.allreduce(scale=0 if w.rank == 0 else 0.5).tolist()]
    bucket.array[:] = w.rank
    results.append(bucket.allreduce("mean").tolist())
    return results


def test_each_rank_may_weigh_its_bucket(ranks):
    assert ranks.run(3, scaled) == [[[1, 2, 1.5], [1, 1, 1]]] * 3


def from_threads(seed):
    w = comm.world()

    def work(bucket, number):
        for i in range(60):
            inputs = [noise(r, bucket.array.shape, "int32") + number + i for r in range(w.size)]
            bucket.array[:] = inputs[w.rank]
            assert_reduced(bucket.allreduce(), inputs, "sum", f"bucket {number}, {i}")

    buckets = [w.bucket(3 + 5000 * number, "int32") for number in range(8)]
    with at_once([partial(work, bucket, i) for i, bucket in enumerate(buckets)], seed):
        pass


@pytest.mark.parametrize(
    "world", [None, {"transport": "mpi"}, {"lanes": 2}, {"transport": "mpi", "lanes": 4}], ids=str
)
def test_buckets_may_be_reduced_at_once_in_any_order(ranks, world):
    ranks.run(4, from_threads, 1, world=world)


def views():
    w = comm.world()
    view = w.bucket(1000).array[10:20]
    gc.collect()
    view[:] = w.rank
    others = [w.bucket(1000) for _ in range(3)]
    for other in others:
        other.array[:] = -1
        other.allreduce()
    return view.tolist()


def views_of_a_closed_world():
    w = rank_nodes.make_world(rank_nodes.communicator)
    bucket = w.bucket(1 << 16)
    bucket.array[:] = 1
    view = bucket.allreduce()[5:]
    w.close()
    del w, bucket
    gc.collect()
    view += 1
    return float(view.sum())


def test_memory_lives_as_long_as_any_view_of_it(ranks):
    for rank, view in enumerate(ranks.run(2, views)):
        assert view == [rank] * 10
    assert ranks.run(3, views_of_a_closed_world) == [4.0 * ((1 << 16) - 5)] * 3


def shared_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssShmem")) >> 10


def many_buckets():
    w = comm.world()
    before = shared_mib()
    for _ in range(40):
        bucket = w.bucket(1 << 20)
        bucket.array[:] = 1
        bucket.allreduce()
        del bucket
    w.barrier()
    return shared_mib() - before


def test_memory_of_dropped_buckets_is_used_again(ranks):
    for more in ranks.run(2, many_buckets):
        assert more < 40  # of 160, and of the other rank's 160 that are mapped


def use_after_a_failure():
    w = comm.world()
    old = w.bucket(4)
    old.array[:] = 1
    old.allreduce()
    w.recover()
    if w.rank == 1:
        w.abort("rank 1: gives up")
    with pytest.raises((CommunicationError, PeerError), match="rank 1: gives up"):
        old.allreduce()
        old.allreduce()
    w.recover()
    with pytest.raises(PeerError, match="communication is closed"):
        old.allreduce()
    new = w.bucket(4)
    new.array[:] = old.array * 0 + 2
    return new.allreduce().tolist()


def test_a_bucket_from_before_a_failure_is_refused_and_a_new_one_works(ranks):
    assert ranks.run(3, use_after_a_failure) == [[6.0] * 4] * 3


def no_room():
    w = comm.world()
    with pytest.raises(MemoryError):
        w.bucket(1 << 45)
    with pytest.raises((ValueError, TypeError)):
        w.bucket(-1)
    bucket = w.bucket(3)
    bucket.array[:] = 1
    return bucket.allreduce().tolist()


def test_a_bucket_that_finds_no_room_leaves_the_world_as_it_was(ranks):
    assert ranks.run(2, no_room) == [[2.0] * 3] * 2
