"""A cluster: MPI ranks that belong to this notebook, from their start to their end."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tnt_notebook import warden
from tnt_notebook.cluster import begun, defaults, launch, lease, start
from tnt_notebook.cluster import record as records
from tnt_notebook.cluster.engines import Engines
from tnt_notebook.cluster.exchange import exchange_settings
from tnt_notebook.cluster.execution import Abandoned, Execution, RanksDied, RanksStuck
from tnt_notebook.cluster.failure import rank_error
from tnt_notebook.cluster.fit import Fit
from tnt_notebook.cluster.folder import RunFolder, tail
from tnt_notebook.cluster.gpus import check_gpus
from tnt_notebook.cluster.output import ranks_label
from tnt_notebook.cluster.place import place
from tnt_notebook.cluster.record import Known, Record
from tnt_notebook.cluster.request import Request, hours_to_seconds, request
from tnt_notebook.cluster.status import Links, RankStatus, links, rank_statuses
from tnt_notebook.cluster.values import packed
from tnt_notebook.errors import ClusterError, DeathError, NoClusterError, RankError

_ENGINE = "tnt_notebook.engine"
_TURN_TICK_S = 0.05
_RECOVER_S = 30.0
_SNAPSHOT_S = 30.0  # between checkpoints that nobody has asked for, to go on from
_STACKS_WAIT_S = 0.5  # for stuck ranks to write where they are


def _silence(line: str) -> None:
    """Reports progress to nobody."""


def _never() -> bool:
    return False


class Cluster:
    """MPI ranks that this process owns, and that end with it unless they are to be kept.

    Args:
        ranks: how many; None where nodes or an allocation say it.
        report: called with a line of progress several times while starting.
        options: those of ``%tnt_cluster start``, checked by
            :func:`tnt_notebook.cluster.request.request`: launcher, nodes, per_node, gpus, cores,
            time, partition, account, modules, env, extra, hostfile, keep, timeout; transport
            ("auto", "shm", "mpi" or "gpi") and lanes (progress threads of a rank), without them
            what ``TNT_TRANSPORT`` and ``TNT_LANES`` say; and interface. What is not given is taken
            from :mod:`tnt_notebook.cluster.defaults`.

    Raises:
        ClusterError: a wrong value, or ranks that do not start; with their own reason, or MPI's.

    Example::

        cluster = Cluster(4)
        cluster.run("print('hello')")
        cluster.stop()
    """

    def __init__(
        self,
        ranks: int | None = None,
        *,
        report: Callable[[str], None] = _silence,
        **options: Any,
    ) -> None:
        asked, how = _asked(ranks, options)
        self._begin(start.start(asked, report, **how))

    @classmethod
    def attach(cls, cluster_id: str | None = None, force: bool = False) -> Cluster:
        """A cluster that another process has started, with all that is on its ranks.

        Args:
            cluster_id: its id or the beginning of it; the only one that nobody owns when None.
            force: takes it from an owner that lives.

        Raises:
            ClusterError: there is no such cluster, or it belongs to somebody.
        """
        cluster = cls.__new__(cls)
        cluster._begin(Engines.attach(records.find(cluster_id), force))
        return cluster

    @staticmethod
    def planned(ranks: int | None = None, **options: Any) -> str:
        """The command or script that would start such a cluster; nothing is started.

        Raises:
            ClusterError: a wrong value.
        """
        asked, how = _asked(ranks, options)
        return start.planned(asked, how["agent"])

    def _begin(self, engines: Engines) -> None:
        self._engines: Engines | None = engines
        self.ranks = engines.size
        # Held by the cell or fit that runs; the next one waits for it.
        self._turn = threading.Lock()
        self._running: Execution | None = None
        self._needs_recovery = False
        self.outlives = _never
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        if self.outlives():
            self.let_go()
        else:
            self.stop()

    def stop(self) -> None:
        """Ends every process and removes every file; a second call does nothing."""
        atexit.unregister(self._at_exit)
        engines, self._engines = self._engines, None
        if engines is not None:
            engines.close()

    def let_go(self, keep: float | None = None) -> Record:
        """Leaves the ranks to whoever attaches to them before their lease is over.

        Args:
            keep: hours of the lease; as was said at the start when None.
        """
        engines = self._alive()
        if keep is not None:
            engines.keep(hours_to_seconds(keep))
        atexit.unregister(self._at_exit)
        self._engines = None
        engines.let_go()
        return engines.record

    def restart(self, report: Callable[[str], None] = _silence) -> None:
        """Starts the ranks anew, with the same options; their variables are lost. A job goes on, if
        it still runs."""
        engines = self._alive()
        asked = Request.from_json(engines.record.request)
        site = defaults.load()
        try:
            if (engines.folder.path / "time-is-up").exists():
                raise ClusterError(f"The time of job {engines.record.job} is over.")
            start.again(engines, report, site.ssh)
            engines.lost.clear()
        except ClusterError as error:
            report(f"starting everything anew: {error}")
            self.stop()
            engines = start.start(asked, report, **_how(site, None))
        except BaseException:  # Ctrl-C: half of a cluster is of no use
            self.stop()
            raise
        atexit.unregister(self._at_exit)
        self._begin(engines)

    def status(self) -> list[RankStatus]:
        """A row per rank, without waiting for ranks that are busy."""
        engines = self._alive()
        running = self._running
        return rank_statuses(engines.seats, running.pending if running else [], engines.dead())

    @property
    def living(self) -> list[int]:
        """Ranks that have not died."""
        return self._alive().living

    @property
    def links(self) -> Links:
        """How the ranks reach each other, as they said when they began."""
        return links(self._alive().seats)

    def logs(self, rank: int, lines: int = 100) -> str:
        """The last lines a rank wrote: prints, and what libraries and child processes wrote."""
        self._check_ranks([rank])
        return tail(self._alive().folder.rank_log(rank), lines)

    @property
    def id(self) -> str:
        """Marks every process of this cluster; a new one after each start."""
        return self._alive().cluster_id

    @property
    def folder(self) -> RunFolder:
        """Where profile, keys and logs lie, until the cluster stops."""
        return self._alive().folder

    @property
    def record(self) -> Record:
        """What the cluster is, as others find it."""
        return self._alive().record

    @property
    def busy(self) -> bool:
        """A cell or a fit runs."""
        return self._running is not None

    # Cells --------------------------------------------------------------------------------

    def run(
        self,
        cell: str,
        ranks: Sequence[int] | None = None,
        report: Callable[[str], None] = _silence,
    ) -> None:
        """Runs a cell on ranks and shows their output while it runs.

        Args:
            cell: Python, as in a notebook cell.
            ranks: where; everywhere when None.
            report: called when the cell has to wait for another one.

        Raises:
            RankError: the cell raised; it shows the ranks' traceback.
            ClusterError: a rank died or could not be freed.
        """
        where = self._check_ranks(ranks)
        with self._turn_of(report) as engines:
            where = self._living(where if ranks is not None else None)
            execution = Execution(engines, where).execute(cell)
            self._follow(execution)
        if execution.failures:
            raise rank_error(execution.failures)

    def push(self, values: dict[str, Any]) -> None:
        """Binds names in the cells of all ranks.

        Raises:
            ClusterError: a value cannot be sent; the message names it.
        """
        self.call("cell:push", packed(values))

    def pull(self, name: str, rank: int = 0) -> Any:
        """The value a name has in the cells of one rank.

        Raises:
            ClusterError: the name is not defined there, or its value cannot be sent.
        """
        answer = self.call("cell:fetch", name, ranks=[rank])[rank]
        if "refused" in answer:
            raise ClusterError(f"rank {rank}: {answer['refused']}")
        return answer["value"]

    def call(
        self,
        function: str,
        *arguments: Any,
        ranks: Sequence[int] | None = None,
        on_data: Callable[[dict[str, Any]], None] | None = None,
        report: Callable[[str], None] = _silence,
    ) -> dict[int, Any]:
        """Calls ``module:function`` of the engine side on ranks; returns answers by rank.

        Args:
            on_data: called with what a rank publishes as data meanwhile.
            report: called when the call has to wait for a cell.

        Raises:
            RankError: the function raised.
        """
        where = self._check_ranks(ranks)
        with self._turn_of(report) as engines:
            where = self._living(where if ranks is not None else None)
            execution = Execution(engines, where, on_data).call(f"{_ENGINE}.{function}", *arguments)
            self._follow(execution)
        if execution.failures:
            raise rank_error(execution.failures)
        return execution.answers

    def fit(
        self,
        cell: str,
        options: dict[str, Any],
        title: str = "fit",
        on_failure: str = "stop",
        restarts: int = 0,
    ) -> Fit:
        """Begins a fit cell on all ranks and returns its handle at once.

        Args:
            cell: ordinary Keras code.
            options: keyword arguments of ``tnt_notebook.distributed``.
            title: what the live view shows.
            on_failure: one of ``choices.ON_FAILURE``.
            restarts: how often it may go on after ranks have died, or their job has ended.
        """
        engines = self._alive()
        if on_failure != "stop" and "checkpoint" not in options:
            # Somewhere, to go on from: it is of no use to anybody later.
            kept = {"folder": str(engines.folder.path / "checkpoint"), "every_s": _SNAPSHOT_S}
            options = {**options, "checkpoint": {**kept, "resume": False}}
        return Fit(self, cell, options, title, on_failure=on_failure, restarts=restarts)

    def mend(self, on_failure: str) -> str:
        """Makes ranks that a fit can go on with, after some have died.

        Args:
            on_failure: ``shrink``: those that live, where any does; ``restart``: all of them.

        Returns:
            What was done, in a sentence.

        Raises:
            ClusterError: nothing can be mended.
        """
        engines = self._alive()
        lost = sorted(engines.lost)
        if engines.survives and lost and engines.living:
            if on_failure == "shrink":
                return f"going on with {ranks_label(engines.living)}"
            try:
                self.fill()
                return f"{ranks_label(lost)} was started again"
            except (ClusterError, RankError) as error:
                print(f"{ranks_label(lost)} cannot be started again alone: {error}", flush=True)
        self.restart(lambda line: None)
        why = "" if engines.survives else ", as this MPI ends them all when one dies"
        return f"all ranks were started again{why}"

    def again(self) -> str:
        """Starts all ranks again: in a new job, where theirs is at its end. A sentence says so."""
        self.restart(lambda line: None)
        job = self.record.job
        return f"ranks were started again{f' in job {job}' if job else ''}"

    def fill(self) -> None:
        """Starts the ranks again that have died; the others keep their variables.

        Raises:
            ClusterError: no rank is missing, or those that live cannot start others.
        """
        engines = self._alive()
        if not engines.lost:
            raise ClusterError("No rank is missing.")
        if not engines.survives:
            raise ClusterError(
                "This MPI ends all ranks when one dies: %tnt_cluster restart starts all of them."
            )
        self._needs_recovery = True
        self.call("successor:fill_seats")
        deadline = time.monotonic() + _RECOVER_S
        while engines.dead():
            if time.monotonic() > deadline:
                raise ClusterError(f"{ranks_label(engines.dead())} did not register.")
            time.sleep(_TURN_TICK_S)
        engines.lost.clear()
        engines.verify()

    @property
    def has_begun_fit(self) -> bool:
        """Whether a fit goes on that another notebook has begun."""
        engines = self._alive()
        return begun.noted(engines.folder) is not None and engines.busy()

    def begun_fit(self) -> Fit | None:
        """The fit that another notebook has begun last on these ranks, with its live view: it goes
        on, or has ended; None where there was none."""
        fit = begun.noted(self._alive().folder)
        return None if fit is None else Fit(self, "", fit.options, fit.title, fit)

    # For the handle of a fit --------------------------------------------------------------

    @contextmanager
    def fit_turn(
        self,
        on_data: Callable[[dict[str, Any]], None],
        cell: str,
        options: dict[str, Any],
        kept: dict[str, Any],
        on_tick: Callable[[], None],
        note: begun.Begun,
    ) -> Iterator[Execution]:
        """Waits for its turn and yields the execution of a fit cell, begun but not followed."""
        with self._turn_of(_silence) as engines:
            begun.note(engines.folder, self.ranks, note)
            kept = {**kept, "ranks": len(engines.living)}
            execution = Execution(engines, engines.living, on_data, on_tick=on_tick)
            yield execution.call(f"{_ENGINE}.fit:run_fit_cell", cell, options, kept)

    @contextmanager
    def begun_turn(self, fit: begun.Begun, on_tick: Callable[[], None]) -> Iterator[Execution]:
        """Yields the execution of a fit that another notebook has begun: it ends with it."""
        with self._turn_of(_silence) as engines:
            tails = begun.Tails(engines.folder, fit.logs)
            execution = Execution(engines, engines.living, tails=tails, on_tick=on_tick)
            yield execution.call(f"{_ENGINE}.fit:result_of", fit.run)

    def follow(self, execution: Execution) -> None:
        """Waits for an execution, and mends the cluster where it can when that fails."""
        self._follow(execution)

    # Inside -------------------------------------------------------------------------------

    def _alive(self) -> Engines:
        if self._engines is None:
            raise NoClusterError("The cluster is stopped. Start one: %tnt_cluster start -n 4")
        if not self._engines.owned:
            engines, self._engines = self._engines, None
            atexit.unregister(self._at_exit)
            engines.let_go()
            raise NoClusterError(
                f"Another notebook has taken cluster {engines.cluster_id}. Start a new one, or "
                f"take it back: %tnt_cluster attach {engines.cluster_id} --force"
            )
        return self._engines

    def _check_ranks(self, ranks: Sequence[int] | None) -> list[int]:
        where = sorted(set(range(self.ranks) if ranks is None else ranks))
        beyond = [rank for rank in where if not 0 <= rank < self.ranks]
        if beyond:
            raise ClusterError(
                f"This cluster has ranks 0 to {self.ranks - 1}, and not {ranks_label(beyond)}."
            )
        return where

    def _living(self, ranks: list[int] | None) -> list[int]:
        """Where a cell runs: on all ranks that live where nothing was said."""
        engines = self._alive()
        if not engines.living:
            raise ClusterError("All ranks have died. %tnt_cluster restart starts them anew.")
        if ranks is not None and (gone := sorted(engines.lost & set(ranks))):
            raise ClusterError(
                f"{ranks_label(gone)} died. %tnt_cluster restart --missing starts it again, "
                "without --missing all ranks."
            )
        return engines.living if ranks is None else ranks

    @contextmanager
    def _turn_of(self, report: Callable[[str], None]) -> Iterator[Engines]:
        """One at a time: cells behind a fit wait here, then meet ranks that can communicate."""
        engines, turn = self._alive(), self._turn
        if not turn.acquire(blocking=False):
            report("waiting for the fit to end")
            while not turn.acquire(timeout=_TURN_TICK_S):  # in steps, so that Ctrl-C is heard
                pass
        try:
            if self._engines is not engines:
                raise ClusterError("The cluster was stopped or restarted while this waited.")
            if self._running is not None:
                report("waiting for the interrupted cell to end")
                self._follow(self._running)
            self._recover(engines)
            yield engines
        finally:
            turn.release()

    def _recover(self, engines: Engines) -> None:
        if self._needs_recovery and self.ranks > 1 and engines.living:
            recovery = Execution(engines, engines.living).call(f"{_ENGINE}.cell:recover")
            self._follow(recovery, timeout=_RECOVER_S)
            if recovery.failures:
                raise rank_error(recovery.failures)
        self._needs_recovery = False

    def _follow(self, execution: Execution, timeout: float | None = None) -> None:
        engines = self._alive()
        self._running = execution
        try:
            execution.wait(timeout)
        except Abandoned:
            self._needs_recovery = True
            raise  # it stays the running one: the next cell waits for it
        except RanksDied as death:
            self._ended(execution)
            raise self._death(engines, death) from None
        except RanksStuck as stuck:
            self._ended(execution)
            raise self._free_by_restart(execution, stuck) from None
        except ClusterError:
            self._ended(execution)
            raise
        self._ended(execution)

    def _ended(self, execution: Execution) -> None:
        # After a restart in another thread this one's execution is history.
        if self._running is execution:
            self._running = None
            self._needs_recovery = self._needs_recovery or bool(execution.failures)

    def _death(self, engines: Engines, death: RanksDied) -> DeathError:
        words = engines.last_words(death.ranks)
        engines.lost.update(engines.dead())
        self._needs_recovery = True
        ranks = engines.of_lost_hosts() or death.ranks
        hosts = sorted({engines.seats[rank]["host"] for rank in ranks})
        said = f"{ranks_label(ranks)} died on {', '.join(hosts)}. "
        if ranks != death.ranks:
            said = f"{ranks_label(ranks)} died on {', '.join(hosts)}: the host was lost. "
        if engines.survives and engines.living:
            said += (
                f"{ranks_label(engines.living)} live, and so do their variables: the next cell "
                "runs there. %tnt_cluster restart --missing starts the others again, without "
                "--missing all ranks."
            )
        else:
            said += "%tnt_cluster restart starts the ranks anew; variables on them are lost."
        return DeathError(f"{said}\n\n{words}", ranks)

    def _free_by_restart(self, execution: Execution, stuck: RanksStuck) -> ClusterError:
        failures = execution.failures
        raised = rank_error(failures) if failures else RankError("It was interrupted.")
        print(f"restarting the engines: {ranks_label(stuck.stuck)} cannot be freed", flush=True)
        tails = begun.Tails(self.folder, [None] * self.ranks)
        execution.request_stacks()
        time.sleep(_STACKS_WAIT_S)
        said = dict(tails.new())
        where = [f"Rank {rank} was here:\n{place(said.get(rank, ''))}" for rank in stuck.stuck]
        self.restart()
        return ClusterError(
            f"{raised}\n{ranks_label(stuck.stuck)} did not end: in a call that cannot be "
            "interrupted. The engines were restarted: variables on all ranks are lost.\n\n"
            + "\n".join([*(raised.rendered or []), *where])
        )


def end(known: Known) -> None:
    """Ends a cluster that nobody owns, or whose warden has ended.

    Raises:
        ClusterError: somebody owns it, or something of it cannot be ended.
    """
    record = known.record
    if not record.here:
        raise ClusterError(f"Cluster {record.id} is kept on {record.host}: stop it there.")
    if known.kept is not None:
        lease.Lease.take(record.plan).release()
    elif left := warden.end(record.plan):
        raise ClusterError(f"Of cluster {record.id} {', '.join(map(str, left))} cannot be ended.")


def _asked(ranks: int | None, options: dict[str, Any]) -> tuple[Request, dict[str, Any]]:
    """What is asked for, checked, and how it is to be started."""
    settings = exchange_settings(options.pop("transport", None), options.pop("lanes", None))
    site = defaults.load()
    given = {name: value for name, value in options.items() if value is not None}
    if launch.allocation(os.environ) and "launcher" not in given and "hostfile" not in given:
        site.launcher = site.hostfile = None  # inside of a job its nodes are the ones to use
    options = defaults.completed(given, site)
    how = _how(site, options.pop("interface", None))
    for name in ("ssh", "queue_hours"):
        options.pop(name, None)
    launcher, inside = launch.chosen(
        options.pop("launcher", None), options.get("hostfile"), os.environ
    )
    if launcher != "ssh" and "hostfile" not in given:
        options.pop("hostfile", None)
    if launcher in ("local", "ssh") or inside:  # a site's defaults for jobs are for jobs
        for name in ("time", "partition", "account"):
            if name not in given:
                options.pop(name, None)
    if launcher == "local":
        if "nodes" not in given:
            options.pop("nodes", None)
        _check_this_machine(options.get("cores"), options.get("gpus"))
    if ranks is None and inside and not {"nodes", "per_node"} & set(given):
        ranks = launch.tasks(launcher, os.environ)
    return request(ranks, launcher=launcher, inside=inside, settings=settings, **options), how


def _how(site: defaults.ClusterDefaults, interface: str | None) -> dict[str, Any]:
    return {
        "interface": interface or site.interface,
        "agent": site.ssh,
        "queue_s": site.queue_hours * 3600.0,
    }


def _check_this_machine(cores: int | None, gpus: int | None) -> None:
    available = len(os.sched_getaffinity(0))
    if cores is not None and not 1 <= cores <= available:
        raise ClusterError(
            f"--cores {cores}: this machine offers 1 to {available} cores to a rank."
        )
    check_gpus(gpus)
