"""Controller, engines and client of a cluster, started together and ended together."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any

import ipyparallel as ipp
import psutil
from traitlets.config import Config

from tnt_notebook.cluster.folder import RunFolder, tail
from tnt_notebook.cluster.launch import Controller, environment, mpi_launch
from tnt_notebook.cluster.lease import Lease
from tnt_notebook.cluster.output import ranks_label
from tnt_notebook.errors import ClusterError

_POLL_S = 0.05
_TAIL_LINES = 25
_CONTROLLER = [
    # The default of 3 s is what ipyparallel's start mostly waits for.
    "--HeartMonitor.period=250",
    # A rank's death is told by its nanny at once; a missing heartbeat may just be a busy machine.
    "--HeartMonitor.max_heartmonitor_misses=120",
    # One warning per message of telemetry would fill the disk.
    "--log-level=ERROR",
    # A tree of broadcast schedulers pays off with hundreds of engines; each is a process of 40 MB.
    "--IPController.broadcast_scheduler_depth=0",
]


class Engines:
    """MPI ranks that answer, and the client that talks to them.

    Args:
        cluster_id: marks every process.
        size: number of ranks.
        gpus: GPUs per host that its ranks share; None leaves GPUs alone.
        cores: cores per rank; all shared evenly when None.
        settings: environment of the ranks.
        timeout: seconds until all ranks must answer.
        report: called with a line about the progress.

    Raises:
        ClusterError: with the tail of what MPI and the engines wrote. Nothing is left behind.
    """

    def __init__(
        self,
        cluster_id: str,
        size: int,
        gpus: int | None,
        cores: int | None,
        settings: dict[str, str],
        timeout: float,
        report: Callable[[str], None],
    ) -> None:
        self.cluster_id = cluster_id
        self.size = size
        self.folder = RunFolder.create(cluster_id)
        self._lease = Lease(cluster_id, self.folder.all)
        self._client: ipp.Client | None = None
        try:
            self._start(gpus, cores, settings)
            self._await(timeout, report)
            self.seats = self._verify()
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    @property
    def client(self) -> ipp.Client:
        """Connected to the controller.

        Raises:
            ClusterError: these engines were stopped.
        """
        if self._client is None:
            raise ClusterError("The cluster was stopped or restarted meanwhile.")
        return self._client

    def dead(self) -> list[int]:
        """Ranks that have left.

        Raises:
            ClusterError: the controller has ended, so nothing can be said about ranks.
        """
        alive = self.client.ids
        if not _alive(self._cluster.controller):
            raise ClusterError(
                "The cluster's controller has ended. %tnt_cluster restart starts everything anew.\n"
                + tail(self.folder.controller_log, _TAIL_LINES)
            )
        return [rank for rank in range(self.size) if rank not in alive]

    def last_words(self, ranks: list[int]) -> str:
        """What is known of ranks that died: their logs' tails, and what MPI says of it."""
        self._wait_for_launcher(3.0)
        parts = []
        for rank in ranks:
            log = tail(self.folder.rank_log(rank), _TAIL_LINES)
            parts.append(f"Log of rank {rank}:\n{log or '(empty)'}")
        if said := tail(self.folder.launcher_log, _TAIL_LINES):
            parts.append(f"MPI says:\n{said}")
        return "\n\n".join(parts)

    def close(self) -> None:
        """Ends every process and removes every file of this cluster."""
        if self._client is not None:
            self._client.close(linger=0)
            self._client = None
        self._lease.release()

    # Start --------------------------------------------------------------------------------

    def _start(self, gpus: int | None, cores: int | None, settings: dict[str, str]) -> None:
        engine = [f"--ranks={self.size}", f"--logs={self.folder.logs}"]
        if gpus is not None:
            engine.append(f"--gpus={gpus}")
        if cores is not None:
            engine.append(f"--cores={cores}")
        launch = mpi_launch(self.folder, self.cluster_id, self.size, engine, settings)
        self._cluster = ipp.Cluster(
            cluster_id=self.cluster_id,
            profile_dir=str(self.folder.profile),
            controller=Controller,
            engines=launch.engines,
            controller_args=_CONTROLLER,
            config=Config(),
            load_profile=False,
            shutdown_atexit=False,  # the lease ends it, whatever happens to this process
            log=_silent(),
        )
        self._cluster.start_controller_sync(
            environment=environment(self.folder, self.cluster_id),
            output_file=str(self.folder.controller_log),
        )
        try:
            self._cluster.start_engines_sync(self.size, **launch.options)
        except (RuntimeError, TimeoutError, OSError) as error:
            raise ClusterError(
                f"The cluster's controller did not start: {error}\n"
                + tail(self.folder.controller_log, _TAIL_LINES)
            ) from error

    def _await(self, timeout: float, report: Callable[[str], None]) -> None:
        """Returns when all ranks have registered."""
        client = self._client = self._cluster.connect_client_sync(
            ipython_dir=str(self.folder.ipython)
        )
        begin = time.monotonic()
        shown = ""
        processes: set[psutil.Process] = set()
        while (answering := len(client.ids)) < self.size:
            waited = time.monotonic() - begin
            line = f"starting {_ranks(self.size)}: {answering} of {self.size} answer"
            line += f" ({waited:.0f} s)"
            if line != shown:
                report(line)
                shown = line
            processes |= self._children_of_launcher()
            # mpiexec itself may hang when a rank fails in MPI_Init: the ranks are what counts.
            if not all(map(_runs, processes)) or not _alive(self._cluster.engine_set):
                self._wait_for_launcher(3.0)
                raise ClusterError(f"Ranks ended while starting.\n{self._start_output()}")
            if waited > timeout:
                raise ClusterError(
                    f"{answering} of {_ranks(self.size)} answered within {timeout:g} s.\n"
                    + self._start_output()
                )
            time.sleep(_POLL_S)

    def _verify(self) -> list[dict[str, Any]]:
        """What each rank says of itself, once it is sure that engine ids are MPI ranks."""
        describe = ipp.Reference("__import__('tnt_notebook.engine.cell', fromlist=['*']).describe")
        answers = self.client[:].apply_async(describe)
        if not answers.wait(30):
            raise ClusterError(
                f"The ranks registered and then fell silent.\n{self._start_output()}"
            )
        seats = answers.get()
        wrong = [
            i for i, seat in enumerate(seats) if (seat["rank"], seat["size"]) != (i, self.size)
        ]
        if wrong:
            raise ClusterError(
                f"Engine {wrong[0]} is MPI rank {seats[wrong[0]]['rank']} of "
                f"{seats[wrong[0]]['size']}. Try %tnt_cluster start again; if it stays so, mpiexec "
                "and mpi4py belong to different MPI installations."
            )
        return seats

    def _children_of_launcher(self) -> set[psutil.Process]:
        """The ranks on this machine, answering or not."""
        try:
            return set(psutil.Process(self._cluster.engine_set.pid).children())
        except psutil.NoSuchProcess:
            return set()

    def _start_output(self) -> str:
        """Why a start failed: what ranks say of it; else the tails of MPI's output and of the first
        rank's that wrote any. MPI says in either why it could not begin, depending on how far the
        ranks came.
        """
        if refusals := reasons(tail(self.folder.launcher_log, _TAIL_LINES)):
            return refusals
        logs = (tail(self.folder.rank_log(rank), _TAIL_LINES) for rank in range(self.size))
        said = [tail(self.folder.launcher_log, _TAIL_LINES), next(filter(None, logs), "")]
        return "\n".join(filter(None, said)) or "(no output)"

    def _wait_for_launcher(self, timeout: float) -> None:
        """mpiexec ends, and says why, a moment after the first rank has died."""
        try:
            psutil.Process(self._cluster.engine_set.pid).wait(timeout)
        except (psutil.NoSuchProcess, psutil.TimeoutExpired):
            pass  # ended already; or lives on, and then has nothing to say


def reasons(launcher_log: str) -> str:
    """What ranks that refused to begin said, in what their launcher wrote; the same once."""
    by_text: dict[str, list[int]] = {}
    for line in launcher_log.splitlines():
        if said := re.fullmatch(r"rank (\d+): (.+)", line):
            by_text.setdefault(said[2], []).append(int(said[1]))
    return "\n".join(f"{ranks_label(ranks)}: {text}" for text, ranks in by_text.items())


def _alive(launcher: Any) -> bool:
    try:
        return _runs(psutil.Process(launcher.pid))
    except psutil.NoSuchProcess:
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _ranks(n: int) -> str:
    return "1 rank" if n == 1 else f"{n} ranks"


def _silent() -> logging.Logger:
    """ipyparallel would log to the notebook; what matters is in our own messages."""
    log = logging.getLogger("tnt_notebook.cluster.ipyparallel")
    log.setLevel(logging.CRITICAL)
    log.propagate = False
    return log
