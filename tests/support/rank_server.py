"""What runs on each rank of the tests' MPI job: ``mpiexec -n 4 python -m ... SOCKET``.

Rank 0 takes jobs from the socket and hands them to the first n ranks.
"""

from __future__ import annotations

import importlib
import pickle
import socket
import sys
import time
import traceback
from typing import Any

from mpi4py import MPI

from tests.support import rank_nodes
from tests.support.rank_pool import _receive, _send
from tnt_notebook import comm

_everyone = MPI.COMM_WORLD
_JOB, _OUTCOME = 1, 2


def serve(address: str) -> None:
    """Runs jobs until the test session closes the socket."""
    connection = None
    if _everyone.rank == 0:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    # All worlds are made here: making one is collective over the whole job.
    groups, worlds, special = {}, {}, {}
    for n in range(1, _everyone.size + 1):
        group = _everyone.Split(0 if _everyone.rank < n else MPI.UNDEFINED, _everyone.rank)
        if group != MPI.COMM_NULL:
            groups[n] = group if n > 1 else None
            worlds[n] = comm.World(groups[n], timeout_s=60)
    while True:
        job = _next_job(connection)
        if job is None:
            break
        n, module, name, args, options, renew = job
        if renew:
            if n in special:
                special[n].close()
            special[n] = rank_nodes.make_world(groups[n], timeout_s=60, **options)
        rank_nodes.communicator = groups[n]
        outcome = _run(worlds[n] if options is None else special[n], module, name, args)
        if connection is None:
            _everyone.send(outcome, 0, _OUTCOME)
        else:
            _send(connection, [outcome, *(_everyone.recv(None, r, _OUTCOME) for r in range(1, n))])
    for world in (*worlds.values(), *special.values()):
        world.close()


def _next_job(connection: socket.socket | None) -> Any:
    if connection is None:
        # A blocking receive would spin, and take the cores from the ranks that work.
        while not _everyone.Iprobe(0, _JOB):
            time.sleep(0.001)
        return _everyone.recv(None, 0, _JOB)
    try:
        job = _receive(connection)
    except ConnectionError:
        for rank in range(1, _everyone.size):
            _everyone.send(None, rank, _JOB)
        return None
    for rank in range(1, job[0]):
        _everyone.send(job, rank, _JOB)
    return job


def _run(world: comm.World, module: str, name: str, args: Any) -> tuple[str, Any]:
    """As a cell on an engine: a rank that raises frees the others; then all start afresh."""
    outcome: tuple[str, Any]
    with comm.use(world):
        try:
            function = importlib.import_module(module)
            for part in name.split("."):
                function = getattr(function, part)
            outcome = ("returned", function(*args))
            pickle.dumps(outcome)
        except Exception as error:
            outcome = ("raised", traceback.format_exc())
            if not getattr(error, "peers_know", False):
                world.abort(f"rank {world.rank}: {type(error).__name__}: {error}")
        world.recover()
    return outcome


if __name__ == "__main__":
    try:
        serve(sys.argv[1])
    except BaseException:  # one rank alone cannot end: the others wait for it, and spin
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
