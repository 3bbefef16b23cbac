"""A program whose ranks die one after another, or together, while the others go on.

Its arguments: those of :func:`tests.support.rank_nodes.make_world`, and the deaths, one after
another: ``{"amid": "exchange", "seats": [2], "later": [0]}`` kills rank 2 amid exchanges, and rank
0 amid the recovery. Each rank that lives prints what it was told of each death, and in which world
it is then.
"""

import contextlib
import faulthandler
import functools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import rank_nodes
from tnt_notebook import comm
from tnt_notebook.comm import mpi
from tnt_notebook.errors import CommunicationError, PeerError

#: After which all ranks say where they are and end.
_LIMIT_S = 90


def main() -> None:
    """Runs on every rank; also on those that others start."""
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    mpi.initialise()
    options, deaths = (json.loads(argument) for argument in sys.argv[1:])
    world = _world(options)
    with comm.use(world):
        works(world)
        while deaths:
            death = deaths.pop(0)
            grows = death.pop("grow", False)
            found = {"death": -len(deaths), **outlive(world, **death)}
            if grows:
                grow(world, deaths)
            print("FOUND " + json.dumps(found), flush=True)
        world.recover()
        world.close()


def outlive(
    world: comm.World, amid: str, seats: Sequence[int], later: Sequence[int] = ()
) -> dict[str, Any]:
    """What a rank that lives finds."""
    seat = world.seats[world.rank]
    expected = set(world.seats) - {*seats, *later}
    note = Path(f"died.{amid}.{min(seats)}")
    group = world.split(0)
    part = world.apart(int(seat in seats or seat in later))
    # With files: in a collective one may still be when another has left it, and dies.
    here = [Path(f"here.{amid}.{min(seats)}.{other}") for other in world.seats]
    here[world.rank].touch()
    while not all(path.exists() for path in here):
        time.sleep(0.001)
    die = functools.partial(_die_within, 0.1, note) if seat in seats else _live
    told = _told_in(WORK[amid], die)
    told_at = time.monotonic()
    if seat in later:
        _die_within(0.01, note)
    elif seat not in seats:  # it may be about to
        assert part.failure is None, part.failure  # nobody of it has died
        works(part)
    world.recover()
    recovered_at = time.monotonic()
    while set(world.seats) != expected:  # the last of them died after the recovery
        _told_in(rest, _live)
        world.recover()
    works(world)
    works(part)
    world.barrier()
    part.close()
    assert comm.survives()
    assert world.can_grow == (len(set(world.hosts)) == 1)
    with contextlib.suppress(CommunicationError):
        group.barrier()
        raise AssertionError("a group outlived its members")
    return {
        "seat": seat, "host": world.hosts[world.rank], "told": told,
        "seconds": told_at - float(note.read_text()), "recovered": recovered_at - told_at,
        "members": world.seats, "lost": world.lost,
    }  # fmt: skip


def works(world: comm.World) -> None:
    """Collectives of all kinds give what they should."""
    n = world.size
    assert world.gather_numbers(world.seats[world.rank]) == list(world.seats)
    for size in (1, 5000, 300_000):
        assert (world.allreduce(np.full(size, world.rank, "float32")) == n * (n - 1) // 2).all()
    assert world.broadcast(np.array([world.rank]), n - 1) == n - 1
    assert (world.alltoall(np.full((n, 3), world.rank)) == np.arange(n)[:, None]).all()
    bucket = world.bucket(70_000)
    bucket.array[:] = 1
    assert (bucket.allreduce() == n).all()
    group = world.split(world.rank % 2)
    assert group.gather_numbers(world.rank) == list(range(world.rank % 2, n, 2))


def grow(world: comm.World, deaths: list[dict[str, Any]]) -> None:
    """Fills the seats of the dead with ranks that run this program, and go on where this one is."""
    began = time.monotonic()
    program = [sys.executable, "-m", "tests.comm.survivors", sys.argv[1], json.dumps(deaths)]
    world.grow(lambda seat: program)
    assert world.seats == tuple(range(world.size)) and not world.lost
    seconds = time.monotonic() - began
    works(world)
    print(f"GROWN {seconds:.3f}", flush=True)


def _world(options: dict[str, Any]) -> comm.World:
    from mpi4py import MPI

    if MPI.Comm.Get_parent() != MPI.COMM_NULL:
        return comm.world()
    return rank_nodes.make_world(MPI.COMM_WORLD, timeout_s=30, **options)


def exchange(world: comm.World, die: Callable[[], None]) -> None:
    """Eager collectives without end."""
    bucket = world.bucket(300_000)
    sizes = random.Random(world.size)
    die()
    while True:
        array = np.full(sizes.randrange(1 << 18), world.rank, "float32")
        assert (world.allreduce(array, "max") == world.size - 1).all()
        bucket.array[:] = 1
        assert (bucket.allreduce() == world.size).all()


def train(world: comm.World, die: Callable[[], None]) -> None:
    """Buckets in a TensorFlow graph, without end."""
    import tensorflow as tf

    from tnt_notebook.comm import ops

    @tf.function(autograph=False)  # it would leave a file
    def step(x: tf.Tensor) -> tf.Tensor:
        with ops.channels():
            first, second = ops.allreduce([x, 2 * x]), ops.allreduce([x[:10]], label="head")
        return first[0][0] + first[1][0] + second[0][0]

    assert step(tf.ones(50_000)) == 4 * world.size
    die()
    try:
        while True:
            assert step(tf.ones(50_000)) == 4 * world.size
    except tf.errors.OpError as error:
        assert "has died" in str(error), error
        raise world.error("the step") from None


def rest(world: comm.World, die: Callable[[], None]) -> None:
    """Nothing is under way when a rank dies; it is noticed all the same, and said at the next
    call."""
    die()
    deadline = time.monotonic() + 10
    while world.failure is None and time.monotonic() < deadline:
        time.sleep(0.001)
    world.barrier()


WORK = {work.__name__: work for work in (exchange, train, rest)}


def _told_in(
    work: Callable[[comm.World, Callable[[], None]], None], die: Callable[[], None]
) -> str:
    try:
        work(comm.world(), die)
    except (PeerError, CommunicationError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nobody has died")


def _die_within(seconds: float, note: Path) -> None:
    """Ends this process at a random time soon, amid what it does then; the note says when."""

    def end() -> None:
        note.write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)

    thread = threading.Timer(random.uniform(0, seconds), end)
    thread.daemon = True
    thread.start()


def _live() -> None:
    """What the others do."""


if __name__ == "__main__":
    main()
