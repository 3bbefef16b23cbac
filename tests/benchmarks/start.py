"""How long `start` takes, beside bare MPI engines of ipyparallel that import TensorFlow.

Ours: ``Cluster(n)`` to ready; and on to the end of ``import tensorflow`` on all ranks. Bare: an
``ipyparallel.Cluster(engines="mpi")`` with its defaults until all engines have imported it, and the
same with a heartbeat period of 250 ms, which is what its start mostly waits for.
"""

import logging
import os
import sys
import tempfile
import time

import ipyparallel as ipp
from traitlets.config import Config

from tests.benchmarks.rounds import counted, ratio, rotating, tell
from tests.support.cases import THOROUGH
from tests.support.rank_pool import rank_environment
from tests.support.shared_cluster import started
from tnt_notebook.cluster.launch.command import find_mpiexec

RANKS = (2, 4, 8) if THOROUGH else (2, 4)
ROUNDS, SECONDS = 5, 60.0
IMPORT = "import tensorflow"


def ours(ranks: int) -> tuple[float, float]:
    """Seconds to ready, and until TensorFlow is there."""
    began = time.perf_counter()
    with started(ranks, timeout=180.0) as cluster:
        ready = time.perf_counter() - began
        cluster.run(IMPORT)
        return ready, time.perf_counter() - began


def bare(ranks: int, period_ms: int | None = None) -> tuple[float, float]:
    """The same of ipyparallel alone."""
    config = Config()
    config.MPIEngineSetLauncher.mpi_cmd = [str(find_mpiexec())]
    config.MPIEngineSetLauncher.mpi_args = ["--oversubscribe"]
    beats = [] if period_ms is None else [f"--HeartMonitor.period={period_ms}"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        cluster = ipp.Cluster(
            n=ranks, engines="mpi", profile_dir=folder, controller_args=beats, config=config,
            load_profile=False, log_level=logging.CRITICAL,
        )  # fmt: skip
        try:
            client = cluster.start_and_connect_sync(activate=False)
            client.wait_for_engines(ranks, timeout=180, interactive=False)
            ready = time.perf_counter() - began
            client[:].execute(IMPORT, block=True)
            return ready, time.perf_counter() - began
        finally:
            cluster.stop_cluster_sync()


def measure(ranks: int) -> str:
    """A line for each comparison."""
    others = {
        "ipyparallel": lambda: bare(ranks),
        "ipyparallel, heartbeat 250 ms": lambda: bare(ranks, 250),
    }
    results = rotating({"ours": lambda: ours(ranks), **others}, ROUNDS, SECONDS)
    mine, lines = results.pop("ours"), []
    for name, times in results.items():
        theirs = [loaded for _, loaded in times]
        begun = ratio([ready for ready, _ in mine], theirs)
        loaded = ratio([loaded for _, loaded in mine], theirs)
        lines.append(
            f"start of {ranks} ranks / {name} until TensorFlow is imported: ready {begun}, "
            f"with the import {loaded}; {begun.a_seconds:.1f} s and {loaded.a_seconds:.1f} s, "
            f"bare {begun.b_seconds:.1f} s; {counted(loaded.rounds)}"
        )
    load = os.getloadavg()[0]
    return "\n".join([*lines, f"(load of the machine at the end: {load:.1f})"])


if __name__ == "__main__":
    os.environ.update(rank_environment())
    tell("  brings files into the page cache")
    ours(2), bare(2)
    for number in map(int, sys.argv[1:] or RANKS):
        print(measure(number), flush=True)
