"""Ranks that answer, and the client that talks to them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ipyparallel as ipp
import psutil

from tnt_notebook.cluster.files import record as records
from tnt_notebook.cluster.files.folder import RunFolder, tail
from tnt_notebook.cluster.files.lease import Lease
from tnt_notebook.cluster.files.record import Known, Record
from tnt_notebook.cluster.launch import oversubscription
from tnt_notebook.cluster.launch.batch import Job
from tnt_notebook.cluster.launch.systems import SYSTEMS
from tnt_notebook.cluster.output.cell_output import CellOutput
from tnt_notebook.cluster.output.late_output import LateOutput, Message
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.output.print_output import Page
from tnt_notebook.errors import ClusterError, EndedError
from tnt_notebook.jupyter.client import Client
from tnt_notebook.protocol import Call
from tnt_notebook.rank_end import ends
from tnt_notebook.warden import processes_of

#: What ends a cell that still ran.
RESTARTED = "The cluster was stopped or restarted meanwhile."
TAIL_LINES = 25
_ENDED_AFTER_S = 3.0  # mpiexec ends, and says why, a moment after the first rank has died
_HOST_LOST_S = 1.5  # until it says so
_CALM_S = 0.3  # without another death
_JOB_ENDS_S = 5.0  # from when its processes are ended until a batch system says how it ended
_DESCRIBE_S = 30.0
#: Either its daemon's connection ends first, or the ssh that has started it.
_LOST_HOST = re.compile(r"^\s*Remote (?:daemon:\s.* on node|host:)\s+(\S+)\s*$", re.MULTILINE)
_CONNECT_S = 30.0  # like the one above, for each rank on a core of this machine
_OUTPUT_S = 0.3


class Engines:
    """MPI ranks that answer; made by :mod:`tnt_notebook.cluster.life.start` or :meth:`attach`.

    Attributes:
        record: what the cluster is.
        lost: ranks that have died, as far as cells have been told.
        restarting: whether they are being ended to be started anew, as somebody has asked.
        page: what has been shown of the ranks.
    """

    def __init__(self, record: Record, folder: RunFolder, lease: Lease) -> None:
        self.record = record
        self.folder = folder
        self.lost: set[int] = set()
        self.restarting = False
        self.page = Page(labelled=record.ranks > 1)
        self._oversubscription = oversubscription.ranks_per_core(record.ranks, record.launcher)
        self._lease = lease
        self._client: Client | None = None
        self._late: LateOutput | None = None

    @classmethod
    def attach(cls, known: Known, force: bool = False) -> Engines:
        """Engines that another process has started.

        Raises:
            ClusterError: somebody owns them, or they are not there any more.
        """
        record = known.record
        if not record.here:
            raise ClusterError(
                f"Cluster {record.id} is kept on {record.host}: attach to it from a notebook there."
            )
        if record.state != "ready":
            raise ClusterError(f"Cluster {record.id} has not finished starting.")
        engines = cls(record, known.folder, Lease.take(record.plan, force))
        try:
            if not records.runs(record.controller):
                raise ClusterError(
                    f"The controller of cluster {record.id} has ended. %tnt_cluster stop "
                    f"{record.id} removes what is left of it."
                )
            engines.connect()
            engines.update(notebook=records.notebook())
            gone = engines.dead()
            if not gone and not engines.busy():
                engines.verify()
            engines.lost = set(gone)
            if gone and not (engines.survives and engines.living):
                raise ClusterError(
                    f"{ranks_label(gone)} of cluster {record.id} died. %tnt_cluster stop "
                    f"{record.id} removes the rest.\n\n{engines.last_words(gone)[1]}"
                )
        except BaseException:
            engines.let_go()
            raise
        return engines

    @property
    def living(self) -> list[int]:
        """Ranks that are not lost."""
        return [rank for rank in range(self.record.ranks) if rank not in self.lost]

    @property
    def survives(self) -> bool:
        """Whether ranks outlive the death of another."""
        return all(seat.get("survives") for seat in self.record.seats)

    @property
    def client(self) -> Client:
        """Connected to the controller.

        Raises:
            EndedError: these engines were stopped, or another notebook has taken them.
        """
        if self._client is None:
            raise EndedError(RESTARTED)
        return self._client

    @property
    def owned(self) -> bool:
        """Whether this process owns them still."""
        return self._lease.hold()

    @property
    def taken(self) -> bool:
        """Whether another process owns them now."""
        return self._lease.taken

    def connect(self) -> None:
        """Connects the client.

        Raises:
            ClusterError: the controller does not answer.
        """
        file = self.folder.profile / "security" / f"ipcontroller-{self.record.id}-client.json"
        connect_s = _CONNECT_S * self._oversubscription
        deadline = time.monotonic() + connect_s
        while not _is_written(file) and records.runs(self.record.controller):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        try:
            folder = self.folder
            self._client = Client(
                file, folder.profile, folder.ipython, self.record.id, timeout=connect_s
            )
            self._late = LateOutput(self._client)
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"The cluster's controller does not answer: {error}\n"
                + tail(self.folder.controller_log, TAIL_LINES)
            ) from error

    def update(self, **changes: Any) -> None:
        """Changes the record, and keeps it."""
        self.record = dataclasses.replace(self.record, **changes)
        records.write(self.record, self.folder)

    def dead(self) -> list[int]:
        """Ranks that have left.

        Raises:
            ClusterError: the controller has ended, so nothing can be said about ranks.
        """
        alive = self.client.ids
        if not records.runs(self.record.controller):
            raise ClusterError(
                "The cluster's controller has ended. %tnt_cluster restart starts everything anew.\n"
                + tail(self.folder.controller_log, TAIL_LINES)
            )
        return [rank for rank in range(self.record.ranks) if rank not in alive]

    def busy(self) -> bool:
        """Whether a rank has something to do, also for an owner before."""
        try:
            said = self.client.queue_status(self.client.ids)
        except (KeyError, ipp.error.NoEnginesRegistered):  # the last of them has just died
            return False
        return any(said[engine]["queue"] for engine in self.client.ids if engine in said)

    def hear_late(
        self, requests: dict[str, int], output: CellOutput, before: Iterable[Message]
    ) -> None:
        """From now on shows what still comes of requests that have been answered.

        Args:
            requests: ranks by the ids of their messages.
            output: of their cell.
            before: what has come, and was not shown yet.
        """
        if self._client is not None and self._late is not None:
            self._client.in_io_thread(self._late.follow, requests, output, before)

    def job(self) -> Job | None:
        """What the batch system says of the job; None where there is none."""
        system = SYSTEMS.get(self.record.launcher)
        if system is None or self.record.job is None:
            return None
        return system.look(self.record.job)

    def _job_at_its_end(self) -> Job | None:
        """The job, where it is ending with how it has ended, if that is known soon."""
        deadline = time.monotonic() + _JOB_ENDS_S
        while True:
            job = self.job()
            if job is None or job.state != "ending" or time.monotonic() > deadline:
                return job
            time.sleep(0.25)

    def launcher_runs(self) -> bool:
        """Whether mpiexec, or the job, is there."""
        if self.record.job is None:
            return records.runs(self.record.engines)
        job = self.job()
        return job is not None and job.state != "ended"

    def wait_for_launcher(self, timeout: float = _ENDED_AFTER_S) -> None:
        """Until mpiexec has ended, which then has said why, or not longer than this."""
        if self.record.engines is None:
            time.sleep(1.0)  # a shared file system shows what a node wrote a moment later
            return
        try:
            if records.runs(self.record.engines):
                psutil.Process(self.record.engines[0]).wait(timeout)
        except (psutil.NoSuchProcess, psutil.TimeoutExpired):
            pass  # ended already; or lives on, and then has nothing to say

    def deaths(self, known: Iterable[int]) -> list[int]:
        """Ranks that have died just now, when no more die: they often end together, and mpiexec
        says why a moment later.

        Args:
            known: who has died so far.
        """
        if not self.survives:
            patience = _ENDED_AFTER_S
        else:  # mpiexec lives on, and says nothing, unless it has lost a host
            patience = _CALM_S if self.record.launcher == "local" else _HOST_LOST_S
        found, more = set[int](), set(known)
        while more:
            found |= more
            self.wait_for_launcher(patience)
            more = set(self.dead()) - self.lost - found
        return sorted(found)

    def end(self, ranks: Iterable[int]) -> None:
        """Ends processes that are left here of ranks that count as dead: while one is only stopped,
        MPI has the others wait for it."""
        left = set(processes_of(self.record.id))
        for seat in (self.record.seats[rank] for rank in ranks):
            if seat["host"] == platform.node() and seat["pid"] in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(seat["pid"], signal.SIGKILL)

    def last_words(self, ranks: list[int]) -> tuple[str, str]:
        """What is known of ranks that died: how or why, as it goes on a sentence that names them;
        and their logs' tails, with what MPI and the batch system say of it."""
        parts, seats = [], self.record.seats
        logs = {rank: tail(self.folder.rank_log(rank), TAIL_LINES) for rank in ranks}
        ended = {
            r: end for r, log in logs.items() for end in ends(log) if end.pid == seats[r]["pid"]
        }
        job = self._job_at_its_end()
        no_launcher = job is None and not self.launcher_runs()
        hows = list(dict.fromkeys(end.said for end in ended.values()))
        hows += ["mpiexec has ended as well"] if no_launcher else []
        why = f" ({', '.join(hows)})" if hows else ""
        if job is not None and job.state in ("ending", "ended"):
            title = SYSTEMS[self.record.launcher].title
            parts.append(f"{title} says: job {self.record.job} {job}.")
        elif silent := [rank for rank in ranks if rank not in ended]:
            why = f"{why}: it fell silent"
            parts.append(
                f"Nobody has told of an end of {ranks_label(silent)}: the host is cut off or down, "
                "or its processes were stopped, or all killed at once."
            )
        if no_launcher:
            parts.append("If somebody has ended mpiexec, the ranks ended with it.")
        for rank, log in logs.items():
            parts.append(f"Log of rank {rank} on {seats[rank]['host']}:\n{log or '(empty)'}")
        said = tail(self.folder.launcher_log, TAIL_LINES)
        if said:
            parts.append(f"MPI says:\n{said}")
        if no_memory := any(end.no_memory for end in ended.values()):
            why = f"{why}: probably for lack of memory"
        if no_memory or "oom" in said.lower():
            parts.append(
                "The host or the job ran out of memory. Smaller batches, fewer ranks on a host, or "
                "a pipeline need less of it."
            )
        return why, "\n\n".join(parts)

    def of_lost_hosts(self) -> list[int]:
        """Ranks whose host was lost, as Open MPI says: it then ends all the others as well."""
        said = re.findall(_LOST_HOST, tail(self.folder.launcher_log, 4 * TAIL_LINES))
        names = {name.partition(".")[0] for name in said}
        return [s["rank"] for s in self.record.seats if s["host"].partition(".")[0] in names]

    def start_output(self) -> str:
        """Why a start failed: what ranks say of it; else the tails of MPI's output and of the first
        rank's that wrote any. MPI says in either why it could not begin, depending on how far the
        ranks came.
        """
        if refusals := self.refusals():
            return refusals
        logs = (tail(self.folder.rank_log(rank), TAIL_LINES) for rank in range(self.record.ranks))
        mpi = tail(self.folder.launcher_log, TAIL_LINES) or tail(self.folder.job_log, TAIL_LINES)
        said = [mpi, next(filter(None, logs), "")]
        return "\n".join(filter(None, said)) or "None of them has written anything."

    def refusals(self) -> str:
        """What ranks said that refused to begin."""
        return reasons(tail(self.folder.launcher_log, TAIL_LINES))

    def verify(self) -> None:
        """Asks each rank who it is, and makes sure that engine ids are MPI ranks.

        Raises:
            ClusterError: they are not, or do not answer.
        """
        describe = ipp.Reference(Call.DESCRIBE.expression)
        describe_s = _DESCRIBE_S * self._oversubscription
        deadline = time.monotonic() + describe_s
        while True:
            answers = self.client[list(range(self.record.ranks))].apply_async(describe)
            if not answers.wait(describe_s):
                raise ClusterError(
                    f"The ranks registered and then fell silent.\n{self.start_output()}"
                )
            # A subscription to what ranks print takes a moment; what they print before is lost.
            if answers.wait_for_output(_OUTPUT_S) or time.monotonic() > deadline:
                break
        seats = answers.get()
        for engine, seat in enumerate(seats):
            if (seat["rank"], seat["size"]) != (engine, self.record.ranks):
                raise ClusterError(
                    f"Engine {engine} is MPI rank {seat['rank']} of {seat['size']}. Try "
                    "%tnt_cluster start again; if it stays so, mpiexec and mpi4py belong to "
                    "different MPI installations."
                )
        self.update(seats=tuple(seats))

    def preload(self) -> None:
        """Has the ranks load Keras, if they were to, while nobody waits for it; returns at once."""
        if self.record.request.get("preload") == "keras":
            begin = ipp.Reference(Call.PRELOAD.expression)
            self.client[self.living].apply_async(begin)

    def keep(self, seconds: float) -> None:
        """Changes for how long the engines live on without an owner."""
        self._lease.keep(seconds)
        self.update(plan=self.record.plan | {"keep_s": seconds})

    def let_go(self) -> None:
        """Leaves the engines to whoever attaches to them before their lease is over."""
        self._disconnect()
        self._lease.let_go()

    def close(self) -> None:
        """Ends every process, the job if there is one, and removes every file of this cluster."""
        self._disconnect()
        self._lease.release()

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close(linger=0)
            self._client = None
        if self._late is not None:
            self._late.stop()


def _is_written(file: Path) -> bool:
    """Whether a file of JSON is there to its end."""
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def reasons(launcher_log: str) -> str:
    """What ranks that refused to begin said, in what their launcher wrote; the same once."""
    by_text: dict[str, list[int]] = {}
    for line in launcher_log.splitlines():
        if said := re.fullmatch(r"rank (\d+): (.+)", line):
            by_text.setdefault(said[2], []).append(int(said[1]))
    return "\n".join(f"{ranks_label(ranks)}: {text}" for text, ranks in by_text.items())
