"""Waits for a job in its queue, and for ranks to register."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import psutil

from tnt_notebook import words
from tnt_notebook.cluster.files import record as records
from tnt_notebook.cluster.files.folder import tail
from tnt_notebook.cluster.files.log_tails import LogTails
from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.requests.engines import TAIL_LINES, Engines
from tnt_notebook.errors import ClusterError
from tnt_notebook.rank_end import ends

Report = Callable[[str], None]

_POLL_S = 0.05
_LOOK_S = (2.0, 15.0)  # at a job that waits: at first, and after a while


def wait_for_ranks(
    engines: Engines, asked: Request, report: Report, queue_s: float, logs_from: Sequence[int]
) -> None:
    """Returns when all ranks have registered.

    Args:
        queue_s: how long a job may wait in its queue; that does not count against the time-out.
        logs_from: how long the ranks' logs were before they were started.

    Raises:
        ClusterError: they did not, with what they, MPI or the batch system say.
    """
    begin = time.monotonic()
    if engines.record.job is not None:
        _wait_in_queue(engines, report, queue_s)
        begin = time.monotonic()
    tell = functools.lru_cache(1)(report)  # the same line once
    looked, expected = begin, engines.record.ranks
    processes: dict[tuple[int, float], int | None] = {}
    logs = LogTails(engines.folder, logs_from)
    dead: dict[int, str] = {}
    while (answering := len(engines.client.ids)) < expected:
        now = time.monotonic()
        waited = now - begin
        far = _how_far(engines, answering)
        tell(f"starting: {far} ({waited:.0f} s)")
        if engines.record.job is None:
            for process in {*processes, *_children(engines)}:
                if processes.get(process) is None:  # it may not have come to its own program yet
                    processes[process] = _rank_of(process)
            # mpiexec itself may hang when a rank fails in MPI_Init: the ranks are what counts.
            gone = [process for process in processes if not records.runs(process)]
            dead |= {r: "" for p in gone if (r := processes[p]) is not None and r not in dead}
            ended = bool(gone) or not engines.launcher_runs()
        else:
            ended = engines.folder.ended(engines.record.rounds).exists()
            if now - looked > _LOOK_S[0]:
                looked = now
                _check_job(engines)
        dead |= {rank: end.said for rank, text in logs.new() for end in ends(text)}
        if ended and not dead:
            engines.wait_for_launcher()
        if ended or dead or engines.refusals():
            raise ClusterError(_ended(engines, dead))
        if waited > asked.timeout_s:
            raise ClusterError(
                f"{far} within {asked.timeout_s:g} s. If they start slowly, raise --timeout; "
                f"fewer ranks start faster.\n{engines.start_output()}"
            )
        time.sleep(_POLL_S)


def _how_far(engines: Engines, answering: int) -> str:
    """How many ranks have answered, and of those that start for the first time, how many have come
    to their own program: on a crowded machine all answer at the end."""
    expected = engines.record.ranks
    said = (
        f"{answering} of {words.ranks(expected)} {words.number(expected, 'has', 'have')} answered"
    )
    logs = map(engines.folder.rank_log, range(expected))
    begun = 0 if engines.restarting else sum(log.exists() for log in logs)
    return f"{said}, {begun} have begun" if begun > answering else said


def _ended(engines: Engines, dead: dict[int, str]) -> str:
    """The error of ranks that have ended before all had registered.

    Args:
        dead: those that are known, with their exit status or signal where that is known.
    """
    if engines.refusals() or not dead:
        return f"Ranks ended while starting.\n{engines.start_output()}"
    hows = ", ".join(dict.fromkeys(filter(None, dead.values())))
    parts = [f"{ranks_label(sorted(dead))} ended while starting{f' ({hows})' if hows else ''}."]
    for rank in sorted(dead):
        log = tail(engines.folder.rank_log(rank), TAIL_LINES)
        parts.append(f"Log of rank {rank}:\n{log or '(empty)'}")
    if said := tail(engines.folder.launcher_log, TAIL_LINES):
        parts.append(f"MPI says:\n{said}")
    return "\n\n".join(parts)


def _wait_in_queue(engines: Engines, report: Report, queue_s: float) -> None:
    """Returns when the job runs."""
    begin, pause = time.monotonic(), _LOOK_S[0]
    tell = functools.lru_cache(1)(report)  # the same line once
    while True:
        job = engines.job()
        assert job is not None
        waited = time.monotonic() - begin
        if job.state == "running":
            return
        if job.state == "ended":
            raise ClusterError(
                f"Job {engines.record.job} {job}, before any rank began.\n{engines.start_output()}"
            )
        tell(f"job {engines.record.job} {job}; waiting for {words.about(waited)}")
        if waited > queue_s:
            raise ClusterError(
                f"Job {engines.record.job} {job}; after {words.about(queue_s)} it is cancelled."
            )
        _sleep(min(pause, 0.5) if waited < 5 else pause)
        pause = min(_LOOK_S[1], pause * 1.1)


def _check_job(engines: Engines) -> None:
    job = engines.job()
    assert job is not None
    if job.state == "ended":
        time.sleep(1.0)  # its output may come after it over a shared file system
        raise ClusterError(
            f"Job {engines.record.job} {job}, while ranks were starting.\n{engines.start_output()}"
        )


def _children(engines: Engines) -> set[tuple[int, float]]:
    """The ranks that mpiexec has started on this machine, answering or not."""
    if engines.record.engines is None or engines.record.launcher != "local":
        return set()
    try:
        found = psutil.Process(engines.record.engines[0]).children()
        return {(child.pid, child.create_time()) for child in found}
    except psutil.NoSuchProcess:
        return set()


def _rank_of(process: tuple[int, float]) -> int | None:
    """Which rank a process is, as mpiexec has told it; None where it is none, or has ended."""
    try:
        told = psutil.Process(process[0]).environ()
    except psutil.Error:
        return None
    numbers = (told.get(name, "") for name in ("PMIX_RANK", "PMI_RANK"))
    return next((int(number) for number in numbers if number.isdigit()), None)


def _sleep(seconds: float) -> None:
    """In pieces, so that Ctrl-C is heard at once."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.1))
