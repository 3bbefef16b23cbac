"""A rank that is killed or stopped: the others hear of it, and nothing of the job is left."""

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.comm import job
from tests.support.cases import THOROUGH

#: Ranks exchange without end; one of them is ended or stopped at a random time then, or while it
#: joins the others. The others write down what they are told, and wait for each other, as mpiexec
#: ends who outlives another's exit.
SCRIPT = """
import contextlib, itertools, os, random, signal, sys, threading, time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError, PeerError

amid, transport, timeout_s, victim, delay_s, number = (eval(argument) for argument in sys.argv[1:])
rank = MPI.COMM_WORLD.rank


def end():
    time.sleep(delay_s)
    Path(f"ended.{rank}").write_text(str(time.monotonic()))
    os.kill(os.getpid(), number)


def write_down_what_is_shared():
    files = [line.split()[-1] for line in open("/proc/self/maps") if " /dev/shm/" in line]
    Path(f"started.tmp.{rank}").write_text("\\n".join([str(os.getpid()), *files]))
    Path(f"started.tmp.{rank}").rename(f"started.{rank}")


write_down_what_is_shared()
MPI.COMM_WORLD.Barrier()
if rank == victim and amid == "start":
    threading.Thread(target=end, daemon=True).start()
w = comm.World(MPI.COMM_WORLD, 60, transport)
w.set_timeout(timeout_s)
write_down_what_is_shared()
buckets = [w.bucket(300_000), w.bucket(5)]
sizes = random.Random(int(1000 * delay_s))
if rank == victim and amid == "exchange":
    threading.Thread(target=end, daemon=True).start()
try:
    for i in itertools.count():
        array = np.full(sizes.randrange(1 << 20), i, "float32")
        assert (w.allreduce(array, "max") == i).all()
        for bucket in buckets:
            bucket.array[:] = w.rank
            assert (bucket.allreduce() == sum(range(w.size))).all()
except (CommunicationError, PeerError) as error:
    Path(f"told.tmp.{w.rank}").write_text(f"{time.monotonic()} {error}")
    Path(f"told.tmp.{w.rank}").rename(f"told.{w.rank}")
    while len(list(Path().glob("told.[0-9]"))) < w.size - 1:
        time.sleep(0.01)
    if number == signal.SIGSTOP:
        with contextlib.suppress(ProcessLookupError):  # another survivor was quicker
            os.kill(int(Path(f"started.{victim}").read_text().split()[0]), signal.SIGKILL)
os._exit(0)
"""


def run(folder: Path, n: int, *arguments: object, **more: Any) -> str:
    """Runs the script to its end, and looks at what is left of it."""
    started = job.start(folder, n, SCRIPT, *map(repr, arguments), **more)
    try:
        _await(folder, n, _has_begun, 60)
        _await(folder, n, _has_ended, 30)
    except AssertionError as error:
        raise AssertionError(f"{error}; they were here:\n{job.killed(started)}") from None
    output = job.output_of(started, 60)
    shared = set()
    for rank in range(n):
        pid, *files = (folder / f"started.{rank}").read_text().split("\n")
        assert not job.runs(int(pid), folder), f"rank {rank} is still there"
        shared.update(files)
    assert not [file for file in shared if os.path.exists(file)]
    assert not job.left(folder)
    return output


def _await(folder: Path, n: int, done: Callable[[Path, int], bool], seconds: float) -> None:
    """Waits until all ranks have come so far."""
    deadline = time.monotonic() + seconds
    while left := [rank for rank in range(n) if not done(folder, rank)]:
        if time.monotonic() > deadline:
            what = done.__name__.removeprefix("_has_")
            raise AssertionError(f"ranks {left} have not {what} after {seconds:g} s")
        time.sleep(0.05)


def _has_begun(folder: Path, rank: int) -> bool:
    return (folder / f"started.{rank}").exists()


def _has_ended(folder: Path, rank: int) -> bool:
    return not job.runs(int((folder / f"started.{rank}").read_text().split("\n")[0]), folder)


def told(folder: Path, n: int, victim: int) -> dict[int, tuple[float, str]]:
    """After how many seconds each survivor was told what."""
    ended = float((folder / f"ended.{victim}").read_text())
    found = {}
    for rank in set(range(n)) - {victim}:
        moment, text = (folder / f"told.{rank}").read_text().split(" ", 1)
        found[rank] = float(moment) - ended, text
    return found


@pytest.mark.parametrize("repetition", range(8 if THOROUGH else 4))
def test_a_killed_rank_ends_the_job_and_nothing_is_left_of_it(tmp_path, repetition):
    chance = random.Random(repetition)
    n, transport = chance.choice([3, 4]), ("auto", "mpi")[repetition % 2]
    amid, most_s = [("start", 0.1), ("exchange", 0.3)][repetition // 2 % 2]
    victim, delay_s = chance.randrange(n), round(chance.uniform(0, most_s), 3)
    output = run(tmp_path, n, amid, transport, 60.0, victim, delay_s, int(signal.SIGKILL))
    assert re.search(r"signal 9|Killed", output), output


ENDURING = ("--enable-recovery",)


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_that_share_memory_with_a_killed_rank_name_it_at_once(tmp_path, victim):
    run(tmp_path, 4, "exchange", "auto", 60.0, victim, 0.1, int(signal.SIGKILL), options=ENDURING)
    for seconds, text in told(tmp_path, 4, victim).values():
        assert f"rank {victim} has died" in text
        assert seconds < 3


@pytest.mark.parametrize("transport", ["auto", "mpi"])
def test_survivors_name_a_rank_that_was_stopped_when_their_time_is_up(tmp_path, transport):
    arguments = ("exchange", transport, 2.0, 1, 0.1, int(signal.SIGSTOP))
    run(tmp_path, 3, *arguments, options=ENDURING)
    outcomes = told(tmp_path, 3, 1)
    for seconds, text in outcomes.values():
        assert re.search(r"waited 2 s for rank \d in allreduce", text), text
        assert seconds < 7
    # A rank may wait for another one that waits for the stopped one: that one says so.
    assert any(re.search("wait(ed 2 s|s) for rank 1 in ", text) for _, text in outcomes.values())
