"""Any sequence of collectives gives what NumPy gives, with the same bits on all ranks."""

from __future__ import annotations

import hashlib
import os

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.comm.calls import COLLECTIVES, LAYOUTS, Call, results
from tests.comm.reference import OPS, TYPES
from tnt_notebook import comm

WORLDS = (
    {},
    {},
    {"transport": "mpi"},
    {"lanes": 2},
    {"nodes": (0, 0, 1, 1)},
    {"nodes": (0, 1, 1, 0)},
)

calls = st.builds(
    Call,
    st.sampled_from(COLLECTIVES),
    st.sampled_from(TYPES),
    st.lists(st.integers(0, 12), max_size=3).map(tuple)
    | st.integers(0, 70_000).map(lambda n: (n,)),
    st.sampled_from(LAYOUTS),
    st.sampled_from(OPS),
    st.integers(0, 6),
    st.integers(0, 3),
    st.just((1.0,) * 4) | st.tuples(*[st.sampled_from([0.0, 1.0, 0.5, -2.0])] * 4),
    st.booleans(),
)  # fmt: skip


def carry_out(sequence: list[Call]) -> str:
    w = comm.world()
    digest = hashlib.sha256()
    for number, call in enumerate(sequence):
        for same_on_all in results(w, call, f"call {number}"):
            digest.update(np.ascontiguousarray(same_on_all).tobytes())
    return digest.hexdigest()


@settings(max_examples=250, deadline=None, derandomize="CI" in os.environ)
@given(st.integers(1, 4), st.sampled_from(WORLDS), st.lists(calls, min_size=1, max_size=12))
def test_any_sequence_of_collectives(ranks, n, world, sequence):
    if "nodes" in world:
        n = 4
    digests = ranks.run(n, carry_out, sequence, world=world if n > 1 and world else None)
    assert len(set(digests)) == 1
