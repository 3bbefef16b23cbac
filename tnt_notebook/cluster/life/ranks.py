"""The ranks of a cluster: cells run on them until they are stopped, or left to another notebook."""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable, Sequence
from typing import Any

from ipyparallel.serialize import PrePickled, deserialize_object, serialize_object

from tnt_notebook import arrays, files
from tnt_notebook.cluster.files.folder import RunFolder, tail
from tnt_notebook.cluster.files.record import Record
from tnt_notebook.cluster.launch.options import OPTIONS, Request
from tnt_notebook.cluster.life import start
from tnt_notebook.cluster.life.status import Links, RankStatus, rank_statuses
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.requests.cell_queue import CellQueue, Place, no_report
from tnt_notebook.cluster.requests.engines import Engines
from tnt_notebook.cluster.requests.execution import Execution
from tnt_notebook.cluster.requests.failure import rank_error
from tnt_notebook.errors import ClusterError, DeathError, NoClusterError, RankError
from tnt_notebook.protocol import Call
from tnt_notebook.words import number

Ticket = tuple[CellQueue, Place]
_UNKNOWN = re.compile(r"Can't get attribute '([\w.]+)' on <module '__main__'")

arrays.install()


class Ranks:
    """What a :class:`~tnt_notebook.cluster.Cluster` is once its ranks answer."""

    #: Asked as this process ends: whether the ranks are to live on. A restart changes nothing.
    outlives: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, engines: Engines) -> None:
        self._begin(engines)

    def _begin(self, engines: Engines) -> None:
        self._engines: Engines | None = engines
        self.ranks = engines.record.ranks
        self._queue = CellQueue(self._alive, self.restart)
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        if self.outlives():
            self.let_go()
        else:
            self.stop()

    def stop(self) -> None:
        """Ends every process and removes every file, unless another notebook has taken them; a
        second call does nothing."""
        atexit.unregister(self._at_exit)
        engines, self._engines = self._engines, None
        if engines is not None and engines.taken:
            engines.let_go()
        elif engines is not None:
            engines.close()

    def let_go(self, keep: float | None = None) -> Record:
        """Leaves the ranks to whoever attaches to them before their lease is over.

        Args:
            keep: hours of the lease; as was said at the start when None.
        """
        engines = self._alive()
        if keep is not None:
            OPTIONS["keep"].check(keep)
            engines.keep(keep * 3600)
        atexit.unregister(self._at_exit)
        self._engines = None
        engines.let_go()
        return engines.record

    def restart(self, report: Callable[[str], None] = no_report) -> None:
        """Starts the ranks anew, with the same options; their variables are lost. A job goes on, if
        it still runs."""
        engines = self._alive()
        try:
            if engines.folder.time_is_up.exists():
                raise ClusterError(f"The time of job {engines.record.job} is over.")
            start.again(engines, report)
        except ClusterError as error:
            report(f"starting everything anew: {error}")
            self.stop()
            engines = start.start(files.typed(Request, engines.record.request), report)
        except BaseException:  # Ctrl-C: half of a cluster is of no use
            self.stop()
            raise
        atexit.unregister(self._at_exit)
        self._queue.closed = True
        self._begin(engines)

    def status(self) -> list[RankStatus]:
        """A row per rank, without waiting for ranks that are busy."""
        engines = self._alive()
        busy = self._queue.running.pending if self._queue.running else []
        return rank_statuses(engines.record.seats, busy, engines.dead())

    @property
    def living(self) -> list[int]:
        """Ranks that have not died."""
        return self._alive().living

    @property
    def survivors(self) -> str:
        """Where cells run after deaths, and how the others come back, in a line; "" where all live,
        or none."""
        engines = self._alive()
        if not engines.lost or not engines.living:
            return ""
        gone = len(engines.lost)
        return (
            f"on {ranks_label(engines.living)} only: {ranks_label(engines.lost)} "
            f"{number(gone, 'has', 'have')} died (%tnt_cluster restart --missing starts "
            f"{number(gone, 'it', 'them')} again)"
        )

    @property
    def survives(self) -> bool:
        """Whether ranks outlive the death of another: with Open MPI's mpiexec they do."""
        return self._alive().survives

    def missing(self) -> list[int]:
        """Ranks that are not there now; cells are taken to be told of them."""
        engines = self._alive()
        gone = engines.dead()
        if not engines.lost.issuperset(gone):
            self._queue.needs_recovery = True
            engines.lost.update(gone)
        return gone

    def take_back(self) -> None:
        """Takes ranks for living again which were lost, and have been started again."""
        engines = self._alive()
        engines.lost.clear()
        engines.verify()
        engines.preload()

    @property
    def is_ours(self) -> bool:
        """Whether this process still has these ranks: not if they are stopped, or taken."""
        return self._engines is not None and not self._engines.taken

    @property
    def links(self) -> Links:
        """How the ranks reach each other, as they said when they began."""
        first = self._alive().record.seats[0]
        return Links(first["links"], first["reason"], first["lanes"])

    def logs(self, rank: int, lines: int = 100) -> str:
        """The last lines a rank wrote: prints, and what libraries and child processes wrote."""
        self._check_ranks([rank])
        return tail(self._alive().folder.rank_log(rank), lines)

    @property
    def id(self) -> str:
        """Marks every process of this cluster; a new one after each start."""
        return self._alive().record.id

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
        return self._queue.running is not None

    # Cells --------------------------------------------------------------------------------

    def run(
        self,
        cell: str,
        ranks: Sequence[int] | None = None,
        report: Callable[[str], None] = no_report,
    ) -> None:
        """Runs a cell on ranks and shows their output while it runs.

        Args:
            cell: Python, as in a notebook cell.
            ranks: where; everywhere when None.
            report: called when the cell has to wait for another one, and when it runs on fewer
                ranks than the cluster has had: on those that live.

        Raises:
            RankError: the cell raised; it shows the ranks' traceback.
            ClusterError: a rank died or could not be freed.
        """

        def execute(execution: Execution) -> None:
            if ranks is None and (said := self.survivors):
                report(said)
            execution.execute(cell)

        self._carry_out(execute, ranks, report)

    def push(self, values: dict[str, Any]) -> None:
        """Binds names in the cells of all ranks.

        Raises:
            ClusterError: a value cannot be sent; the message names it.
        """
        try:
            self.call(Call.PUSH, _packed(values))
        except RankError as error:
            if unknown := _UNKNOWN.search(str(error)):
                raise ClusterError(
                    f"The cells of the ranks do not know {unknown[1]}, which this notebook has "
                    "defined. Define it in a %%tnt cell too, or push plain data: numbers, lists, "
                    "dicts, arrays."
                ) from None
            raise

    def pull(self, name: str, rank: int = 0) -> Any:
        """The value a name has in the cells of one rank.

        Raises:
            ClusterError: the name is not defined there, or its value cannot be sent.
        """
        answer = self.call(Call.FETCH, name, ranks=[rank])[rank]
        if "refused" in answer:
            raise ClusterError(f"rank {rank}: {answer['refused']}")
        try:
            return deserialize_object(answer["value"])[0]
        except Exception as error:  # whatever a stranger's class raises as it is read
            raise ClusterError(
                f"{name!r} of rank {rank} has a type that this notebook does not know "
                f"({type(error).__name__}: {error}). Define or import it here too, or pull plain "
                "data: numbers, lists, dicts, arrays."
            ) from None

    def call(
        self,
        function: Call,
        *arguments: Any,
        ranks: Sequence[int] | None = None,
        on_data: Callable[[dict[str, Any]], None] | None = None,
        report: Callable[[str], None] = no_report,
    ) -> dict[int, Any]:
        """Calls a function of the engine side on ranks; returns answers by rank.

        Args:
            on_data: called with what a rank publishes as data meanwhile.
            report: called when the call has to wait for a cell.

        Raises:
            RankError: the function raised.
        """
        return self._carry_out(lambda one: one.call(function, *arguments), ranks, report, on_data)

    def ask(
        self,
        function: Call,
        *arguments: Any,
        on_data: Callable[[dict[str, Any]], None] | None = None,
        report: Callable[[str], None] = no_report,
    ) -> Any:
        """Calls a function of the engine side on the first rank that lives, and returns its answer;
        the rest as in :meth:`call`."""
        first = self.living[:1] or [0]
        answers = self.call(function, *arguments, ranks=first, on_data=on_data, report=report)
        return answers[first[0]]

    def _carry_out(
        self,
        send: Callable[[Execution], object],
        ranks: Sequence[int] | None,
        report: Callable[[str], None],
        on_data: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[int, Any]:
        self._check_ranks(ranks)
        queue = self._queue
        with queue.turn(report) as engines:
            execution = Execution(engines, self._living(ranks), on_data)
            send(execution)
            queue.follow(execution)
        if execution.failures:
            raise rank_error(execution.failures)
        return execution.answers

    # For the handle of a fit --------------------------------------------------------------

    def draw(self, of: str) -> Ticket:
        """A place behind what came before, for what is called so; to be given back."""
        return self._queue, self._queue.draw(of)

    # For the handle of a sweep ------------------------------------------------------------

    @property
    def queue(self) -> CellQueue:
        """Of these ranks, until they are started anew."""
        return self._queue

    def death(self, ranks: list[int]) -> DeathError:
        """The error of ranks that have died amid something; they are lost from now on."""
        return self._queue.death(self._alive(), ranks)

    # Inside -------------------------------------------------------------------------------

    def _alive(self) -> Engines:
        if self._engines is None:
            raise NoClusterError("The cluster is stopped. Start one: %tnt_cluster start -n 4")
        if not self._engines.owned:
            engines, self._engines = self._engines, None
            atexit.unregister(self._at_exit)
            engines.let_go()
            if not engines.folder.path.exists():
                raise NoClusterError(
                    f"Cluster {engines.record.id} has ended: the process that keeps it was told to "
                    "end it, from outside of this notebook. Start a new one."
                )
            raise NoClusterError(
                f"Another notebook has taken cluster {engines.record.id}. Start a new one, or "
                f"take it back: %tnt_cluster attach {engines.record.id} --force"
            )
        return self._engines

    def _check_ranks(self, ranks: Sequence[int] | None) -> None:
        if beyond := [rank for rank in ranks or () if not 0 <= rank < self.ranks]:
            raise ClusterError(
                f"This cluster has ranks 0 to {self.ranks - 1}, and not {ranks_label(beyond)}."
            )

    def _living(self, ranks: Sequence[int] | None) -> list[int]:
        """Where a cell runs: on all ranks that live where nothing was said."""
        engines = self._alive()
        if not engines.living:
            raise ClusterError("All ranks have died. %tnt_cluster restart starts them anew.")
        if ranks is not None and (gone := sorted(engines.lost & set(ranks))):
            raise ClusterError(
                f"{ranks_label(gone)} died. %tnt_cluster restart --missing restarts "
                f"{number(len(gone), 'it', 'them')}; without --missing, all."
            )
        return engines.living if ranks is None else sorted(set(ranks))


def _packed(values: dict[str, Any]) -> PrePickled:
    """Values serialised once for all ranks; arrays are not copied."""
    try:
        return PrePickled(values)
    except Exception:  # whatever __reduce__ of a stranger raises
        for name, value in values.items():
            try:
                serialize_object(value)
            except Exception as error:
                raise ClusterError(
                    f"{name!r} is of type {type(value).__name__}, which cannot be sent to the "
                    f"ranks ({type(error).__name__}: {error}). Push plain data (numbers, lists, "
                    "dicts, arrays), or make the object in a %%tnt cell."
                ) from error
        raise
