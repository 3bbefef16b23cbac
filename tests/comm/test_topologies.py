"""Every collective over every kind of link between ranks."""

from __future__ import annotations

import pytest

from tests.comm import sweep

WORLDS = [
    (2, {"transport": "mpi"}),
    (3, {"transport": "mpi"}),
    (4, {"transport": "mpi"}),
    (4, {"transport": "mpi", "lanes": 3}),
    (3, {"transport": "shm", "lanes": 4}),
    (4, {"nodes": (0, 0, 1, 1)}),
    (4, {"nodes": (0, 1, 0, 1)}),
    (4, {"nodes": (0, 0, 0, 1)}),
    (4, {"nodes": (2, 1, 1, 0), "lanes": 2}),
    (3, {"nodes": (1, 0, 1)}),
]


@pytest.mark.parametrize(("n", "world"), WORLDS, ids=str)
def test_every_collective_by_every_algorithm(ranks, n, world):
    digests = ranks.run(n, sweep.everything, world=world)
    assert len(set(digests)) == 1
