"""A cluster: MPI ranks that belong to this notebook, from their start to their end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tnt_notebook.cluster.files import fit_note
from tnt_notebook.cluster.files import record as records
from tnt_notebook.cluster.handles.fit import Fit
from tnt_notebook.cluster.launch import oversubscription
from tnt_notebook.cluster.launch.request import asked
from tnt_notebook.cluster.life import start
from tnt_notebook.cluster.life.ranks import Ranks
from tnt_notebook.cluster.requests.cell_queue import no_report
from tnt_notebook.cluster.requests.engines import Engines
from tnt_notebook.errors import TntError
from tnt_notebook.telemetry import archive

if TYPE_CHECKING:
    from tnt_notebook.cluster.handles.sweep import Sweep
    from tnt_notebook.sweep.space import Task

_SNAPSHOT_S = 30.0  # between checkpoints that nobody has asked for, to go on from
_RESULT_S = 10.0  # for the ranks to give the result of a fit that has ended


class Cluster(Ranks):
    """MPI ranks that this process owns, and that end with it unless they are to be kept.

    Args:
        ranks: how many; None where nodes or an allocation say it.
        report: called with a line of progress several times while starting.
        warn: called before, where what is asked for is better not asked for.
        options: those of ``%tnt_cluster start``, by their names in
            :class:`~tnt_notebook.cluster.launch.options.Request`. What is not given is taken from
            the site's file, see :mod:`tnt_notebook.cluster.launch.defaults`.

    Raises:
        ClusterError: a wrong value, or ranks that do not start; with their own reason, or MPI's.
        TypeError: there is no such option.

    Example::

        cluster = Cluster(4)
        cluster.run("print('hello')")
        cluster.stop()
    """

    def __init__(
        self,
        ranks: int | None = None,
        *,
        report: Callable[[str], None] = no_report,
        warn: Callable[[str], None] = no_report,
        **options: Any,
    ) -> None:
        wanted = asked(ranks, options)
        if said := oversubscription.warning(wanted.ranks, wanted.launcher, wanted.timeout_s):
            warn(said)
        super().__init__(start.start(wanted, report))

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
        Ranks.__init__(cluster, Engines.attach(records.find(cluster_id), force))
        return cluster

    @staticmethod
    def planned(ranks: int | None = None, **options: Any) -> str:
        """The command or script that would start such a cluster; nothing is started.

        Raises:
            ClusterError: a wrong value.
        """
        return start.planned(asked(ranks, options))

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
        run = str(archive.new_folder(title))
        return Fit(self, fit_note.FitNote(title, run, options, cell, on_failure, restarts))

    def sweep(self, cell: str, task: Task, title: str = "sweep") -> Sweep:
        """Begins a sweep of a cell on groups of the ranks, and returns its handle at once.

        Args:
            cell: ordinary Keras code.
            task: what is to be tried.
            title: what the live view shows.

        Raises:
            SweepError: it cannot be as it is asked for; nothing has begun.
        """
        from tnt_notebook.cluster.handles.sweep import Sweep

        self._alive()
        return Sweep(self, task, cell, title)

    @property
    def has_begun_fit(self) -> bool:
        """Whether a fit goes on that another notebook has begun."""
        engines = self._alive()
        return fit_note.read(engines.folder) is not None and engines.busy()

    def begun_fit(self) -> Fit | None:
        """The fit that another notebook has begun last on these ranks, with its live view: it goes
        on, or has ended, and then its result is here; None where there was none."""
        engines = self._alive()
        note = fit_note.read(engines.folder)
        if note is None:
            return None
        goes_on = engines.busy()
        fit = Fit(self, note, joins=True)
        if not goes_on:  # what is run next has nothing to wait for
            with suppress(TntError, TimeoutError):  # the fit tells its errors itself
                fit.wait(_RESULT_S)
        return fit
