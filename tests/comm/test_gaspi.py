"""Collectives over GPI-2 between ranks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

from tests.comm import sweep
from tests.support import gpi2, hosts, rank_nodes
from tests.support.rank_pool import ROOT, RankPool, mpiexec, rank_environment
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
    pool = RankPool(tmp_path_factory.mktemp("gpi_ranks"))
    pool.run(4, links, world=world_of(4))
    yield pool
    pool.stop()


def links():
    w = comm.world()
    return w.links.asked, w.links.describe(), w.node


@gpi2.needed
@pytest.mark.parametrize("n", [2, 3, 4])
def test_ranks_without_shared_memory_have_gpi_between_them(gpi_ranks, n):
    assert gpi_ranks.run(n, links, world=world_of(n)) == [("gpi", "gpi", tuple(range(n)))] * n


@gpi2.needed
def test_ranks_of_a_node_share_memory(gpi_ranks):
    expected = ("gpi", "shared memory, gpi between 2 nodes", (0, 0, 2, 2))
    assert gpi_ranks.run(4, links, world=PAIRS) == [expected] * 4


WORLDS = [(n, world_of(n)) for n in (2, 3, 4)] + [(3, world_of(3, lanes=3)), (4, PAIRS)]


@gpi2.needed
@pytest.mark.parametrize(("n", "world"), WORLDS, ids=str)
def test_every_collective_by_every_algorithm(gpi_ranks, n, world):
    digests = gpi_ranks.run(n, sweep.everything, world=world)
    assert len(set(digests)) == 1


def sums_of_large_arrays():
    w = comm.world()
    for count in (1 << 10, 1 << 18, (1 << 22) + 7):
        inputs = [np.random.default_rng(r).integers(-9, 9, count) for r in range(w.size)]
        result = w.allreduce(inputs[w.rank].astype("float32"))
        np.testing.assert_array_equal(result, np.sum(inputs, axis=0))
    bucket = w.bucket(100_000)
    for turn in range(5):
        bucket.array[:] = w.rank + turn
        assert (bucket.allreduce() == sum(range(w.size)) + turn * w.size).all()


@gpi2.needed
@pytest.mark.parametrize(("n", "world"), [(2, world_of(2)), (4, PAIRS)], ids=str)
def test_messages_larger_than_the_rings(gpi_ranks, n, world):
    gpi_ranks.run(n, sums_of_large_arrays, world=world)


def different_sizes():
    w = comm.world()
    with pytest.raises((CommunicationError, PeerError)) as caught:
        w.allreduce(np.ones(10 + 5 * (w.rank == 1), "float32"))
    return str(caught.value)


@gpi2.needed
def test_ranks_in_different_operations_are_told_both(gpi_ranks):
    for text in gpi_ranks.run(3, different_sizes, world=world_of(3)):
        assert "of 10 float32" in text and "of 15 float32" in text


def raise_on(rank):
    if comm.rank() == rank:
        raise ValueError("bad shard")
    started = time.monotonic()
    with pytest.raises(PeerError) as caught:
        comm.world().barrier()
    return str(caught.value), time.monotonic() - started


def sum_of_ranks():
    return int(comm.world().allreduce(np.array(comm.rank())))


@gpi2.needed
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


@gpi2.needed
def test_an_abort_that_has_to_wait_for_room_arrives(gpi_ranks):
    for _ in range(5):
        assert max(gpi_ranks.run(2, abort_behind_many_notices, world=world_of(2))) < 10


def abort_amid_large_messages():
    """Rank 0 has sent megabytes that rank 1 has not asked for when rank 1 gives up."""
    w = comm.world()
    if w.rank == 1:
        w.abort("rank 1: gives up")
    with pytest.raises((PeerError, CommunicationError)):
        w.allreduce(np.ones(1 << 22, "float32"))
    w.recover()
    return float(w.allreduce(np.ones(1 << 20, "float32"))[-1])


@gpi2.needed
def test_messages_under_way_at_a_failure_do_not_reach_the_next_collective(gpi_ranks):
    for _ in range(5):
        assert gpi_ranks.run(3, abort_amid_large_messages, world=world_of(3)) == [3.0] * 3


def to_everyone(size):
    w = comm.world()
    for peer in range(w.size):
        w.notify(peer, 3, bytes([w.rank]) * size)
    found, deadline = [], time.monotonic() + 10
    while len(found) < w.size and time.monotonic() < deadline:
        found += w.notices()
    return sorted(found)


@gpi2.needed
@pytest.mark.parametrize("size", [0, 6, 8192])
def test_notices_reach_all_ranks(gpi_ranks, size):
    for world in (world_of(4), PAIRS):
        for found in gpi_ranks.run(4, to_everyone, size, world=world):
            assert found == [(r, 3, bytes([r]) * size) for r in range(4)]


def many_worlds(count):
    for _ in range(count):
        w = rank_nodes.make_world(rank_nodes.communicator, (0, 1), transport="gpi", timeout_s=30)
        assert w.gather_numbers(w.rank) == [0, 1]
        w.close()
        del w


@gpi2.needed
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


@gpi2.needed
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


@gpi2.needed
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
@pytest.mark.skipif(
    bool(hosts.unavailable()), reason=f"this machine does not allow it: {hosts.unavailable()}"
)
def test_shared_memory_within_hosts_and_gpi_between_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with hosts.hosts(2) as rack:
        command = [*rack.mpiexec(ranks_per_host=2), sys.executable, str(script)]
        outcome = rack[0].run(
            command,
            cwd=ROOT,
            env=rank_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )
    assert outcome.returncode == 0, outcome.stdout
    assert sorted(outcome.stdout.split("\n"))[-4:] == [f"done {rank}" for rank in range(4)]


#: Rank 1 ends or stops itself amid exchanges. The others write down what they are told, and after
#: how long; and wait for each other, as mpiexec ends who outlives another's exit.
ENDING = """
import os, signal, sys, time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError, PeerError

w = comm.World(MPI.COMM_WORLD, timeout_s=60, transport="gpi")
w.barrier()
w.set_timeout(3)
Path(f"process.{w.rank}").write_text(str(os.getpid()))
try:
    for i in range(1_000_000):
        if i == 20 and w.rank == 1:
            os.kill(os.getpid(), int(sys.argv[1]))
        began = time.monotonic()
        w.allreduce(np.ones(1 << 20, "float32"))
except (CommunicationError, PeerError) as error:
    Path(f"new.{w.rank}").write_text(f"{time.monotonic() - began} {error}")
    Path(f"new.{w.rank}").rename(f"told.{w.rank}")
    while len(list(Path().glob("told.*"))) < w.size - 1:
        time.sleep(0.01)
    os.kill(int(Path("process.1").read_text()), signal.SIGKILL)
os._exit(0)
"""


@gpi2.needed
@pytest.mark.parametrize(
    ("number", "seconds", "said"),
    [
        (signal.SIGKILL, 3, "rank 1 cannot be reached any more over GASPI"),
        (signal.SIGSTOP, 8, "waited 3 s for rank "),
    ],
)
def test_survivors_of_a_rank_that_is_killed_or_stopped_are_told(tmp_path, number, seconds, said):
    script = tmp_path / "script.py"
    script.write_text(ENDING)
    command = [*mpiexec(3), "--enable-recovery", sys.executable, str(script), str(int(number))]
    environment = {**rank_environment(), "TNT_SHARED_MEMORY": "0", "PYTHONPATH": str(ROOT)}
    log = tmp_path / "log"
    with log.open("wb") as output:
        job = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        job.wait(90)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    for rank in (0, 2):
        assert (tmp_path / f"told.{rank}").exists(), log.read_text()
        after, text = (tmp_path / f"told.{rank}").read_text().split(" ", 1)
        assert float(after) < seconds
        assert said in text
