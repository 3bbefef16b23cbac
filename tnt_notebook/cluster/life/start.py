"""Starts controller and engines, and waits until all ranks answer."""

from __future__ import annotations

import contextlib
import errno
import logging
import platform
import secrets
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ipyparallel as ipp
import psutil
from ipyparallel.cluster.launcher import BaseLauncher, LocalControllerLauncher, MPIEngineSetLauncher
from traitlets.config import Config

from tnt_notebook import files, warden, words
from tnt_notebook.cluster.files import record as records
from tnt_notebook.cluster.files.folder import RunFolder, base, segments_of, tail
from tnt_notebook.cluster.files.lease import Lease
from tnt_notebook.cluster.files.log_tails import length
from tnt_notebook.cluster.launch.batch import submit
from tnt_notebook.cluster.launch.command import environment, local_environment
from tnt_notebook.cluster.launch.launch import Launch, launch_of
from tnt_notebook.cluster.launch.network import LOOPBACK, address_for
from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.cluster.launch.systems import SYSTEMS, nodes
from tnt_notebook.cluster.life.registration import Report, wait_for_ranks
from tnt_notebook.cluster.requests.engines import TAIL_LINES, Engines
from tnt_notebook.errors import ClusterError, Interrupted
from tnt_notebook.jupyter.client import REMEMBERED
from tnt_notebook.warden import Plan

_POLL_S = 0.05
_GONE_S = 30.0  # for engines to end
_PERIOD_MS = 250
#: Seconds without a heartbeat until a rank counts as dead, on this host: there its nanny tells of a
#: death at once, and a missing heartbeat may just be a busy machine.
_SILENCE_S = 30.0


class _KeepsOutput(BaseLauncher):
    def _log_output(self, stop_data: Any = None) -> None:
        """ipyparallel removes a process's output when it ends; the run folder keeps it."""


class _Controller(_KeepsOutput, LocalControllerLauncher):
    """The controller, on this machine."""


class _MpiEngines(_KeepsOutput, MPIEngineSetLauncher):
    """Engines started by one mpiexec that runs on this machine."""


def start(asked: Request, report: Report) -> Engines:
    """Starts a cluster.

    Args:
        report: called with a line about the progress.

    Raises:
        ClusterError: with what batch system, MPI and engines wrote. Nothing is left behind.
    """
    for gone in records.remove_dead():
        report(f"removed what was left of cluster {gone}, which was killed")
    try:
        engines, launch = _begin(asked)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.ENOMEM):  # it is processes that there is no room for
            raise
        raise ClusterError(_full(error, asked)) from error
    try:
        _controller(engines, asked, report)
        _launch(engines, launch)
        engines.connect()
        wait_for_ranks(engines, asked, report, asked.queue_hours * 3600, [0] * engines.record.ranks)
        engines.verify()
        engines.update(state="ready")
        engines.preload()
    except BaseException as error:  # Ctrl-C too
        told = _closed(engines, asked, error)
        if told is error:
            raise
        raise told from error
    return engines


def _begin(asked: Request) -> tuple[Engines, Launch]:
    """Makes folders, lease and record of a cluster; none of its processes runs yet."""
    cluster_id = secrets.token_hex(4)
    with contextlib.ExitStack() as undo:
        folder = RunFolder.create(cluster_id, asked.on_other_hosts)
        folders = [str(path) for path in folder.all]
        undo.callback(warden.remove, folders)
        launch = launch_of(asked, folder, cluster_id)
        launch.check()
        plan = Plan(
            id=cluster_id, folders=folders, socket=str(folder.warden), busy=str(folder.busy),
            keep_s=asked.keep * 3600, fit_s=asked.fit_hours * 3600, ask=launch.ask,
            cancel=launch.cancel, listing=launch.listing, sweep=launch.sweep,
        )  # fmt: skip
        lease = Lease.begin(plan)
        undo.callback(lease.release)
        record = records.Record(
            id=cluster_id, ranks=asked.ranks, launcher=asked.launcher, host=platform.node(),
            pids=warden.pids_count_in(), began=time.time(), request=asdict(asked), plan=plan,
            notebook=records.notebook(),
        )  # fmt: skip
        records.write(record, folder)
        undo.pop_all()
    return Engines(record, folder, lease), launch


def _closed(engines: Engines, asked: Request, error: BaseException) -> BaseException:
    """Ends what has begun of a cluster that did not start; returns what to raise."""
    if isinstance(error, Exception):
        try:
            engines.folder.check_room()
        except OSError as full:  # of which those who could not write may have said nothing
            error = ClusterError(f"{_full(full, asked)}\n\n{error}")
    try:
        engines.close()
    except ClusterError as left:  # a batch system that does not answer, say
        return ClusterError(f"{error}\n{left}") if isinstance(error, ClusterError) else left
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("The start was interrupted: no cluster runs, and nothing of it is left.")
    return error


def _full(error: OSError, asked: Request) -> str:
    return (
        f"The files of a cluster cannot be written below {base(asked.on_other_hosts)}: "
        f"{error.strerror or error}. Make room there (the disk may be full, or your quota), or "
        "name another folder: TNT_RUN_DIR=/path"
    )


def planned(asked: Request) -> str:
    """What would be run or submitted for a request, as text."""
    path = base(asked.on_other_hosts) / "tnt-ID-NAME"
    return launch_of(asked, RunFolder(path, segments_of(path)), "ID").shown.rstrip() + "\n"


def again(engines: Engines, report: Report) -> None:
    """Ends the engines and starts them anew, with the same controller, and in the same job.

    Raises:
        ClusterError: controller or job have ended, or ranks do not begin.
    """
    asked: Request = files.typed(Request, engines.record.request)
    if not records.runs(engines.record.controller):
        raise ClusterError("The cluster's controller has ended.")
    if engines.record.job is not None:
        job = engines.job()
        if job is None or job.state in ("ending", "ended"):
            raise ClusterError(f"Job {engines.record.job} {job}.")
    report("ending the engines")
    engines.restarting = True
    try:
        # Through their nannies, which tell the controller; killed themselves, they could not.
        if alive := list(engines.client.ids):
            engines.client.send_signal(signal.SIGKILL, targets=alive, block=False)
        deadline = time.monotonic() + _GONE_S
        while engines.client.ids:
            if time.monotonic() > deadline:
                raise ClusterError(f"{words.ranks(len(engines.client.ids))} did not end.")
            time.sleep(_POLL_S)
        warden.end_processes(engines.record.id, warden.ENGINES_MARKER)
        logs_from = [length(engines.folder.rank_log(r)) for r in range(engines.record.ranks)]
        launch = launch_of(asked, engines.folder, engines.record.id)
        if launch.system is None:
            _launch(engines, launch)
        else:
            engines.folder.again(engines.record.rounds).touch(0o600)
            engines.update(rounds=engines.record.rounds + 1)
        wait_for_ranks(engines, asked, report, queue_s=_GONE_S, logs_from=logs_from)
    finally:
        engines.restarting = False
    engines.verify()
    engines.lost.clear()
    engines.preload()


def _controller(engines: Engines, asked: Request, report: Report) -> None:
    """Starts the controller; only this host's loopback and one address for engines listen."""
    folder, address = engines.folder, LOOPBACK
    if asked.on_other_hosts:
        hosts = [name for name, _ in asked.hosts]
        if asked.launcher in SYSTEMS:
            hosts = nodes(asked.launcher)
        address, why = address_for(hosts, asked.interface)
        engines.update(reached=f"{address}, {why}")
        report(f"engines reach this notebook at {engines.record.reached}")
    silence_s = asked.silence if asked.on_other_hosts else _SILENCE_S
    misses = round(silence_s * 1000 / _PERIOD_MS) - 1  # that may be; one more may not
    _write(
        folder.profile / "ipcontroller_config.py",  # no argument: those can be read by anybody
        f"c.Session.key = {secrets.token_hex(32).encode()!r}\n"
        "c.IPController.enable_curve = True\n"
        f"c.Session.digest_history_size = {REMEMBERED}\n",
    )
    starter = _starter(
        engines,
        controller=_Controller,
        controller_args=[
            f"--IPController.engine_ip={address}",
            f"--IPController.client_ip={LOOPBACK}",
            f"--IPController.location={address}",
            # The default of 3 s is what ipyparallel's start mostly waits for.
            f"--HeartMonitor.period={_PERIOD_MS}",
            f"--HeartMonitor.max_heartmonitor_misses={misses}",
            # One warning per message of telemetry would fill the disk.
            "--log-level=ERROR",
            # It would keep what ranks printed and answered: for all cells of days.
            "--nodb",
            # A tree of broadcast schedulers pays off with hundreds of engines; each is a process
            # of 40 MB.
            "--IPController.broadcast_scheduler_depth=0",
        ],
    )
    try:
        starter.start_controller_sync(
            environment=environment(folder, engines.record.id) | local_environment(folder),
            output_file=str(folder.controller_log),
        )
        engines.update(controller=records.process(starter.controller.pid))
    except (RuntimeError, TimeoutError, OSError, psutil.NoSuchProcess) as error:
        raise ClusterError(
            f"The cluster's controller did not start: {error}\n"
            + tail(folder.controller_log, TAIL_LINES)
        ) from error


def _starter(of: Engines, **parts: Any) -> ipp.Cluster:
    """What ipyparallel starts processes by."""
    return ipp.Cluster(
        cluster_id=of.record.id,
        profile_dir=str(of.folder.profile),
        config=Config(),
        load_profile=False,
        shutdown_atexit=False,  # the lease ends them, whatever happens to this process
        log=_silent(),
        **parts,
    )


def _launch(engines: Engines, launch: Launch) -> None:
    """Starts mpiexec, or submits the job."""
    for path, text in launch.files.items():
        _write(path, text)
    if launch.system is not None and launch.script is not None:
        engines.update(job=submit(launch.system, launch.script))
        return
    starter = _starter(engines, engines=_MpiEngines)
    starter.start_engines_sync(engines.record.ranks, **launch.options)
    with contextlib.suppress(psutil.NoSuchProcess):  # ended already: the wait says so
        engines.update(engines=records.process(starter.engine_set.pid))


def _write(path: Path, text: str) -> None:
    with open(path, "w", opener=files.private) as file:
        file.write(text)


def _silent() -> logging.Logger:
    """ipyparallel would log to the notebook; what matters is in our own messages."""
    log = logging.getLogger("tnt_notebook.cluster.ipyparallel")
    log.setLevel(logging.CRITICAL)
    log.propagate = False
    return log
