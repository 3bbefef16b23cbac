"""How a rank begins: its log, its cores and GPU, MPI, and then an ipyparallel engine.

The order matters. Cores and environment are settled before TensorFlow or OpenMP can be imported,
and MPI is initialised before the engine registers, so that the engine's id is the MPI rank.

A rank that takes the seat of one that has died (:func:`tnt_notebook.engine.cell.fill_seats`) is
told which in its arguments: it alone is MPI's world at first.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ipyparallel.engine.app import IPEngine
from traitlets.config import Config

from tnt_notebook import comm
from tnt_notebook.comm import mpi
from tnt_notebook.engine import cell, deferred, fit, host
from tnt_notebook.engine.log import keep_end
from tnt_notebook.engine.nanny import Nanny, fork
from tnt_notebook.engine.placement import (
    Seat,
    by_neighbourhood,
    cores_of,
    gpu_of,
    seat,
    thread_environment,
)
from tnt_notebook.engine.streams import RankStream, detach_streams
from tnt_notebook.errors import ClusterError, TntError
from tnt_notebook.jupyter import rank_kernel
from tnt_notebook.protocol import PORTS, rank_log

#: Until the controller must have answered, for each rank on a core.
_REGISTER_S = 30.0


class RankEngine(IPEngine):
    """An ipyparallel engine that frees its peers when a cell raises, and keeps a log."""

    # Tells ipyparallel to call the application by its own name in help and configuration.
    name = "ipengine"
    nanny: Nanny | None = None
    #: With which random state cells begin, the same on all ranks; None: of a rank that came later.
    chance: int | None = None

    def init_signal(self) -> None:
        """SIGTERM ends a rank at once, and not after its cell: there is nothing to put in order."""
        super().init_signal()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    async def complete_registration(self, msg: Any, connect: Any, maybe_tunnel: Any) -> None:
        """Called when the controller has answered: the shell exists from here on."""
        await super().complete_registration(msg, connect, maybe_tunnel)
        cell.install(self.kernel.shell)
        if self.chance is not None:
            cell.begin_alike(self.kernel.shell, self.chance)
        fit.install()

    def start_nanny(self, control_url: str) -> Any:
        """Begins the process that relays signals; it stays silent, the log is the rank's."""
        assert self.nanny is not None
        address = self.nanny.begin(
            engine_id=self.id, identity=self.bident, control_url=control_url,
            curve_serverkey=self.curve_serverkey, curve_secretkey=self.curve_secretkey,
            curve_publickey=self.curve_publickey, registration_url=self.registration_url,
            config=Config(Session=self.config.Session), log_level=logging.CRITICAL + 1,
        )  # fmt: skip
        return address, self.nanny


def main(arguments: list[str] | None = None) -> None:
    """Begins this rank; returns when the engine ends."""
    options, engine_arguments = _parser().parse_known_args(arguments)
    here = (
        seat(os.environ)
        if options.seat is None
        else Seat(options.seat, options.ranks, options.local_rank, options.local_size)
    )
    if options.hosts:
        host.prepare(options.logs.parent, here)
    launcher = detach_streams(options.logs / rank_log(here.rank))
    RankEngine.nanny = fork()
    keep_end(os.dup(1))
    cell.listen_for_free()
    # Ignored where a script has started mpiexec in the background; cells are to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Others may have this rank's core before it; asked before it has cores of its own.
    oversubscription = max(1.0, here.local_size / len(os.sched_getaffinity(0)))
    try:
        _place(here, options.cores, options.gpus)
        mpi.initialise()
        _forget_guard()
        if options.seat is None:
            _check_world(here, options.ranks)
        # Collective, so here, where all ranks are: in a cell one could raise before it gets there,
        # and a rank that has no world can neither free the others nor be freed.
        comm.world()
        comm.survives()  # known from what is hidden now
        if options.seat is None:
            RankEngine.chance = _shared_chance()
        mpi.hide_launcher()
        sys.excepthook = sys.__excepthook__  # the others outlive this rank, whatever its end
    except TntError as error:
        _tell(launcher, here, str(error))
        sys.exit(1)  # it is a sentence: a traceback would not add to it
    except (ImportError, OSError) as error:
        _tell(launcher, here, f"{type(error).__name__}: {error}")
        raise
    rank_kernel.install(comm.world().size)
    deferred.defer()
    engine = RankEngine.instance(
        id=here.rank,
        use_mpi=True,
        init_mpi="",  # cells begin with an empty namespace
        out_stream_factory=RankStream,
        log_level=logging.ERROR,
        timeout=_REGISTER_S * oversubscription,
    )
    engine.initialize(engine_arguments)
    try:
        engine.start()
    except RuntimeError as error:
        if "Event loop stopped" not in str(error):  # by quit() in a cell
            raise


def _shared_chance() -> int:
    """A number drawn by rank 0. Collective."""
    (number,) = comm.world().broadcast(np.array([random.getrandbits(32)], np.int64))
    return int(number)


def _forget_guard() -> None:
    """What cells start has nothing to do with the ports of this rank's MPI."""
    if os.environ.pop(PORTS, None) is not None:
        others = os.environ.pop("LD_PRELOAD", "").partition(":")[2]
        if others:
            os.environ["LD_PRELOAD"] = others


def _tell(launcher: int, here: Seat, why: str) -> None:
    """Tells the launcher in one line why this rank does not begin."""
    os.write(launcher, f"rank {here.rank}: {' '.join(why.split())}\n".encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tnt_notebook.engine", description=__doc__)
    parser.add_argument("--ranks", type=int, required=True, help="ranks the world must have")
    parser.add_argument("--logs", type=Path, required=True, help="folder of the ranks' logs")
    parser.add_argument("--gpus", type=int, help="GPUs per host that its ranks share")
    parser.add_argument("--cores", type=int, help="cores per rank")
    parser.add_argument("--hosts", action="store_true", help="ranks may be on several hosts")
    parser.add_argument("--seat", type=int, help="of the rank that has died, for its successor")
    parser.add_argument("--local-rank", type=int, default=0, help="of the seat, on its host")
    parser.add_argument("--local-size", type=int, default=1, help="seats on that host")
    return parser


def _place(here: Seat, cores_per_rank: int | None, gpus: int | None) -> None:
    allowed = by_neighbourhood(os.sched_getaffinity(0))
    cores = cores_of(here.local_rank, here.local_size, allowed, cores_per_rank)
    os.sched_setaffinity(0, cores)
    os.environ.update(thread_environment(len(cores)))
    # The numbers of nvidia-smi, and of NVML that measures them.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    gpu = gpu_of(here.local_rank, gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    # TensorFlow takes all of a GPU's memory at once otherwise, and the next rank on it finds none.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def _check_world(here: Seat, expected: int) -> None:
    """Initialises MPI and makes sure that the ranks found each other."""
    from mpi4py import MPI

    size, rank = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()
    if (size, rank) != (expected, here.rank):
        raise ClusterError(
            f"MPI sees rank {rank} of {size} here, and the launcher said rank {here.rank} of "
            f"{expected}: mpi4py in {sys.prefix} and mpiexec belong to different MPI "
            "installations. Put the mpiexec of mpi4py's MPI first on PATH."
        )
