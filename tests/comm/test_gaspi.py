"""Collectives over GPI-2 between ranks."""

import os
import signal
import sys
import time
from unittest import mock

import pytest

from tests.comm.calls import everything
from tests.comm.test_buckets import of_growing_size
from tests.comm.test_collectives import large_allreduces
from tests.comm.test_failures import abort_amid_large_messages, links, raise_on, sum_of_ranks
from tests.comm.test_killed_ranks import ENDURING, run, told
from tests.comm.test_mismatch import of_sizes
from tests.comm.test_notices import to_everyone
from tests.support import gpi2, hosts, rank_nodes
from tests.support.rank_pool import ROOT, RankPool, rank_environment
from tnt_notebook import comm
from tnt_notebook.comm import gaspi
from tnt_notebook.errors import CommunicationError, PeerError


def world_of(n, **options):
    """A world whose ranks share no memory: GPI-2 carries everything."""
    return {"transport": "gpi", "nodes": tuple(range(n)), **options}


#: Rank 0 and 1, and 2 and 3, share memory.
PAIRS = {"transport": "gpi", "nodes": (0, 0, 1, 1)}


@pytest.fixture(scope="module")
def gpi_ranks(tmp_path_factory):
    """Ranks all of which have started GASPI together: worlds of some of them come afterwards."""
    if problem := gpi2.unavailable():
        pytest.skip(f"this machine does not allow it: {problem}")
    pool = RankPool(tmp_path_factory.mktemp("gpi_ranks"))
    pool.run(4, links, world=world_of(4))
    yield pool
    pool.stop()


@pytest.mark.parametrize("n", [2, 3, 4])
def test_ranks_without_shared_memory_have_gpi_between_them(gpi_ranks, n):
    assert gpi_ranks.run(n, links, world=world_of(n)) == [("gpi", "gpi", tuple(range(n)))] * n


def test_ranks_of_a_node_share_memory(gpi_ranks):
    expected = ("gpi", "shared memory, gpi between 2 nodes", (0, 0, 2, 2))
    assert gpi_ranks.run(4, links, world=PAIRS) == [expected] * 4


WORLDS = [(n, world_of(n)) for n in (2, 3, 4)] + [(3, world_of(3, lanes=3)), (4, PAIRS)]


@pytest.mark.parametrize(("n", "world"), WORLDS, ids=str)
def test_every_collective_by_every_algorithm(gpi_ranks, n, world):
    assert len(set(gpi_ranks.run(n, everything, world=world))) == 1


@pytest.mark.parametrize(("n", "world"), [(2, world_of(2)), (4, PAIRS)], ids=str)
def test_messages_larger_than_the_rings(gpi_ranks, n, world):
    gpi_ranks.run(n, of_growing_size, world=world)
    gpi_ranks.run(n, large_allreduces, (1 << 22) + 7, world=world)


def test_ranks_in_different_operations_are_told_both(gpi_ranks):
    sizes, kinds = (10, 15), ("float32", "float32")
    for text, _ in gpi_ranks.run(3, of_sizes, sizes, kinds, world=world_of(3)):
        assert "of 10 float32" in text and "of 15 float32" in text


@pytest.mark.parametrize(("n", "world"), [(3, world_of(3)), (4, PAIRS)], ids=str)
def test_a_rank_that_raises_frees_the_others_and_recovery_works_many_times(gpi_ranks, n, world):
    for _ in range(20):
        outcomes = gpi_ranks.outcomes(n, raise_on, 2, world=world)
        assert outcomes[2][0] == "raised" and "bad shard" in outcomes[2][1]
        for kind, (message, seconds) in outcomes[:2]:
            assert kind == "returned" and seconds < 5
            assert message.endswith("because rank 2: ValueError: bad shard")
        assert gpi_ranks.run(n, sum_of_ranks, world=world) == [sum(range(n))] * n


def abort_behind_many_notices():
    """More than there is room for on the way, so that the abort has to wait for its turn."""
    w = comm.world()
    if w.rank == 1:
        for _ in range(300):
            w.notify(0, 1, bytes(8192))
        w.abort("rank 1: gives up")
    started = time.monotonic()
    with pytest.raises((PeerError, CommunicationError), match="rank 1: gives up"):
        w.barrier()
    return time.monotonic() - started


def test_an_abort_that_has_to_wait_for_room_arrives(gpi_ranks):
    for _ in range(5):
        assert max(gpi_ranks.run(2, abort_behind_many_notices, world=world_of(2))) < 10


def test_messages_under_way_at_a_failure_do_not_reach_the_next_collective(gpi_ranks):
    for _ in range(5):
        assert gpi_ranks.run(3, abort_amid_large_messages, world=world_of(3)) == [3.0] * 3


@pytest.mark.parametrize("size", [0, 6, 8192])
def test_notices_reach_all_ranks(gpi_ranks, size):
    for world in (world_of(4), PAIRS):
        for found in gpi_ranks.run(4, to_everyone, 3, size, world=world):
            assert found == [(r, 3, bytes([r]) * size) for r in range(4)]


def many_worlds(count):
    for _ in range(count):
        w = rank_nodes.make_world(rank_nodes.communicator, (0, 1), transport="gpi", timeout_s=30)
        assert w.gather_numbers(w.rank) == [0, 1]
        w.close()
        del w


def test_worlds_come_and_go(gpi_ranks):
    gpi_ranks.run(2, many_worlds, 40)


def start_with(variables):
    with mock.patch.dict(os.environ, variables), pytest.raises(CommunicationError) as caught:
        comm.World(rank_nodes.communicator, timeout_s=30, transport="gpi")
    return str(caught.value)


def test_where_there_is_no_library_all_ranks_name_what_was_looked_for(ranks):
    texts = ranks.run(3, start_with, {gaspi.LIBRARY_VARIABLE: "libNoSuchGPI2.so"})
    assert len(set(texts)) == 1
    assert texts[0].startswith("transport gpi is not possible: rank 0: GPI-2 was not found: ")
    assert "libNoSuchGPI2.so" in texts[0]
    assert "set TNT_GASPI_LIBRARY to its path" in texts[0]
    assert ranks.run(3, sum_of_ranks) == [3, 3, 3]


def one_without(rank):
    if comm.rank() == rank:
        return start_with({gaspi.LIBRARY_VARIABLE: "libNoSuchGPI2.so"})
    return start_with({})


def test_one_rank_without_the_library_is_named_to_all(gpi_ranks, ranks):
    texts = ranks.run(3, one_without, 1)
    assert len(set(texts)) == 1 and "rank 1: GPI-2 was not found" in texts[0]


def small_world_first():
    """Ranks 0 and 1 start GASPI; then all want a world."""
    own = rank_nodes.communicator
    part = own.Split(own.rank // 2)
    if own.rank < 2:
        w = comm.World(part, timeout_s=30, transport="gpi")
        assert w.gather_numbers(w.rank) == [0, 1]
        w.close()
    return start_with({})


def test_a_larger_world_than_the_first_one_is_an_error_that_says_what_to_do(gpi_ranks, tmp_path):
    pool = RankPool(tmp_path)
    try:
        for text in pool.run(4, small_world_first):
            assert "GASPI has started among other ranks" in text
            assert "Make the first world with transport gpi of all ranks" in text
    finally:
        pool.stop()


SCRIPT = """
import numpy as np
from mpi4py import MPI

from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError, PeerError

w = comm.World(MPI.COMM_WORLD, timeout_s=30, transport="gpi")
for _ in range(3):
    assert (w.allreduce(np.full(1 << 18, w.rank, "float32")) == sum(range(w.size))).all()
    if w.rank == 1:
        w.abort("rank 1: gives up")
    try:
        w.barrier()
    except (CommunicationError, PeerError) as error:
        assert "rank 1: gives up" in str(error)
    w.recover()
assert w.links.describe() == "shared memory, gpi between 2 nodes", w.links
w.barrier()
print("done", w.rank)
"""


@gpi2.needed
@hosts.needed
def test_shared_memory_within_hosts_and_gpi_between_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with hosts.hosts(2) as rack:
        command = [*rack.mpiexec(ranks_per_host=2), sys.executable, str(script)]
        outcome = rack[0].run(
            command, cwd=ROOT, env=rank_environment(), capture_output=True, text=True, timeout=90
        )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert sorted(outcome.stdout.split("\n"))[-4:] == [f"done {rank}" for rank in range(4)]


@gpi2.needed
@pytest.mark.parametrize(
    ("number", "seconds", "said"),
    [
        (signal.SIGKILL, 3, "rank 1 cannot be reached any more over GASPI"),
        (signal.SIGSTOP, 8, "waited 3 s for rank "),
    ],
)
def test_survivors_of_a_rank_that_is_killed_or_stopped_are_told(tmp_path, number, seconds, said):
    apart = {"options": ENDURING, "TNT_SHARED_MEMORY": "0"}
    run(tmp_path, 3, "exchange", "gpi", 3.0, 1, 0.1, int(number), **apart)
    for after, text in told(tmp_path, 3, 1).values():
        assert after < seconds
        assert said in text
