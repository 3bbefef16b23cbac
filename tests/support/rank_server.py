"""What runs on each rank of the tests' MPI job: ``mpiexec -n 4 python -m ... SOCKET``."""

import importlib
import pickle
import sys
import traceback
from multiprocessing.connection import Client
from typing import Any

from tnt_notebook.engine import deferred

deferred.defer()  # as ranks of clusters do, and these: before Keras is loaded

import tensorflow as tf  # noqa: E402
from mpi4py import MPI  # noqa: E402

from tests.support import rank_nodes  # noqa: E402
from tnt_notebook import comm  # noqa: E402

_everyone = MPI.COMM_WORLD

#: Seconds that ranks wait for one another: all share two cores with whatever else is tested then.
TIMEOUT_S = 150


def serve(address: str) -> None:
    """Runs jobs until the test session closes the socket."""
    connection = Client(address)
    connection.send(_everyone.rank)
    # Graphs of a few steps are not worth optimizing; cells, scripts and notebooks under test are.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # All worlds are made here: making one is collective over the whole job.
    groups, worlds, special = {}, {}, {}
    for n in range(1, _everyone.size + 1):
        group = _everyone.Split(0 if _everyone.rank < n else MPI.UNDEFINED, _everyone.rank)
        if group != MPI.COMM_NULL:
            groups[n] = group if n > 1 else None
            worlds[n] = comm.World(groups[n], timeout_s=TIMEOUT_S)
    while True:
        try:
            # Asleep until there is a job: a rank that polls takes a core from those that work.
            n, module, name, args, options, renew = connection.recv()
        except (ConnectionError, EOFError):
            break
        if renew:
            if n in special:
                special[n].close()
            special[n] = rank_nodes.make_world(groups[n], timeout_s=TIMEOUT_S, **options)
        rank_nodes.communicator = groups[n]
        connection.send(_run(worlds[n] if options is None else special[n], module, name, args))
    for world in (*worlds.values(), *special.values()):
        world.close()


def _run(world: comm.World, module: str, name: str, args: Any) -> tuple[str, Any]:
    """As a cell on an engine: a rank that raises frees the others; then all start afresh."""
    outcome: tuple[str, Any]
    world.set_timeout(TIMEOUT_S)  # a job before may have set another
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
