"""A thousand collectives in a row, of every kind, on the world, on groups and on buckets."""

import hashlib
import random

import numpy as np
import pytest

from tests.comm.calls import COLLECTIVES, LAYOUTS, Call, results
from tests.comm.reference import OPS, TYPES, assert_reduced, dtype_of, ops_of, small_integers
from tnt_notebook import comm

WORLDS = [
    (1, None), (2, {"transport": "shm"}), (3, {"transport": "shm"}), (4, {"transport": "shm"}),
    (2, {"transport": "mpi"}), (4, {"transport": "mpi"}), (3, {"nodes": (0, 0, 1)}),
    (4, {"nodes": (0, 0, 1, 1)}), (4, {"nodes": (0, 1, 1, 0), "lanes": 2}),
]  # fmt: skip


def any_call(chance: random.Random) -> Call:
    shape = (int(2 ** chance.uniform(0, 16)) - 1,)
    if chance.random() < 0.4:
        shape = tuple(chance.randrange(13) for _ in range(chance.randrange(4)))
    scales = () if chance.random() < 0.5 else tuple(chance.choices([0, 1, 0.5, -2], k=4))
    return Call(
        collective=chance.choice(COLLECTIVES),
        dtype=chance.choice(TYPES),
        shape=shape,
        layout=chance.choice(LAYOUTS),
        op=chance.choice(OPS),
        algorithm=chance.randrange(8),
        root=chance.randrange(4),
        scales=scales,
        special=chance.random() < 0.2,
    )


def reduce_in_place(bucket, call: Call, what: str) -> np.ndarray:
    w, dtype = comm.world(), bucket.array.dtype.name
    inputs = [small_integers(rank, bucket.array.shape, dtype) for rank in range(w.size)]
    op = call.op if call.op in ops_of(dtype) else "sum"
    bucket.array[:] = inputs[w.rank]
    assert_reduced(bucket.allreduce(op), inputs, op, what)
    return bucket.array


def carry_out(seed: int, times: int) -> str:
    """All ranks draw the same calls. Gives a digest of what must have the same bits on all."""
    w, chance, digest = comm.world(), random.Random(seed), hashlib.sha256()
    overs = [w, w.split(0), w.split(w.rank % 2), w.split(w.rank == 1)]
    buckets = [
        w.bucket(count, dtype_of(dtype))
        for count, dtype in zip((1, 77, 9001), TYPES[:3], strict=True)
    ]
    for number in range(times):
        call, what = any_call(chance), f"call {number} of seed {seed}"
        over, bucket = chance.choice([*overs, None]), chance.choice(buckets)
        if over is None:
            same_on_all = [reduce_in_place(bucket, call, what)]
        else:
            same_on_all = results(over, call, what)
        for array in same_on_all if over in (w, None) else ():
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(("n", "world"), WORLDS, ids=str)
def test_a_thousand_calls_give_what_numpy_gives(ranks, n, world):
    seed = WORLDS.index((n, world))
    assert len(set(ranks.run(n, carry_out, seed, 1000, world=world))) == 1
