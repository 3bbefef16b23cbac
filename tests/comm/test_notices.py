"""Small messages beside the collectives."""

import time

import pytest

from tnt_notebook import comm


def to_everyone(kind, size):
    w = comm.world()
    payload = bytes([w.rank]) * size
    for peer in range(w.size):
        w.notify(peer, kind, payload)
    w.barrier()
    return sorted(taken(w.size))


def taken(count):
    w, found, deadline = comm.world(), [], time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        found += w.notices()
    return found


@pytest.mark.parametrize("size", [0, 6, 8192])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_notices_arrive_beside_the_collectives(ranks, n, size):
    for found in ranks.run(n, to_everyone, 3, size):
        assert found == [(r, 3, bytes([r]) * size) for r in range(n)]


def in_order(count):
    w = comm.world()
    if w.rank == 0:
        for i in range(count):
            w.notify(1, i % 7, str(i).encode())
        return []
    return taken(count)


@pytest.mark.parametrize("world", [None, {"transport": "mpi"}], ids=str)
def test_notices_of_a_rank_arrive_in_the_order_in_which_they_were_sent(ranks, world):
    _, found = ranks.run(2, in_order, 2000, world=world)
    assert found == [(0, i % 7, str(i).encode()) for i in range(2000)]
