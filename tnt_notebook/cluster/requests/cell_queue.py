"""Cells and fits on the ranks of a cluster: one at a time, in the order in which they came."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tnt_notebook.cluster.files.log_tails import LogTails
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.requests.engines import Engines
from tnt_notebook.cluster.requests.execution import Abandoned, Execution, RanksDied, RanksStuck
from tnt_notebook.cluster.requests.failure import death_error, rank_error, stuck_error
from tnt_notebook.errors import ClusterError, DeathError, Interrupted, RankError
from tnt_notebook.protocol import Call

_TURN_TICK_S = 0.05
_RECOVER_S = 120.0  # as much as MPI may take for it
_STACKS_WAIT_S = 0.5  # for stuck ranks to write where they are


def no_report(line: str) -> None:
    """Reports progress to nobody."""


class Several:
    """What runs side by side, on ranks of its own each."""

    def __init__(self) -> None:
        self._executions: list[Execution] = []

    def add(self, execution: Execution) -> None:
        """One has begun."""
        self._executions = [e for e in self._executions if e.pending] + [execution]

    @property
    def pending(self) -> list[int]:
        """Ranks that have not answered."""
        return sorted(rank for execution in self._executions for rank in execution.pending)


@dataclass(frozen=True, eq=False)
class Place:
    """In the queue.

    Attributes:
        of: who has it, for those that wait behind.
    """

    of: str


class CellQueue:
    """The queue of one set of ranks, from their start until they are stopped or started anew.

    Args:
        alive: the ranks, or an error that says why there are none.
        restart: starts them anew, where one cannot be freed.

    Attributes:
        closed: these ranks were started anew, and have another queue.
        running: what runs, or was left running by a person who pressed interrupt twice.
        needs_recovery: ranks have to free their communication before the next cell.
    """

    def __init__(self, alive: Callable[[], Engines], restart: Callable[[], None]) -> None:
        self.closed = False
        self.running: Execution | Several | None = None
        self.needs_recovery = False
        self._alive = alive
        self._restart = restart
        self._changed = threading.Condition()
        # The first is the cell or fit that runs; the others wait, whenever they begin to.
        self._tickets: deque[Place] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether what is asked now is answered at once, without a death to tell of before."""
        engines = self._alive()
        died = any(rank not in engines.lost for rank in engines.dead())
        return not (self._tickets or self.running or died)

    def draw(self, of: str = "the cell before") -> Place:
        """A place in the queue; it has to be given back.

        Args:
            of: who draws it, for those that wait behind.
        """
        ticket = Place(of)
        with self._changed:
            self._tickets.append(ticket)
        return ticket

    def before(self, ticket: Place) -> str:
        """Whom a ticket waits for, ``fit``, or ``fit and 2 more``; "" where it is the first."""
        with self._changed:
            first, ahead = self._tickets[0], self._tickets.index(ticket)
        if first is ticket:
            return ""
        return first.of + (f" and {ahead - 1} more" if ahead > 1 else "")

    def give_back(self, ticket: Place) -> None:
        """Leaves the queue; a second time does nothing."""
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._changed.notify_all()

    @contextmanager
    def turn(
        self, report: Callable[[str], None] = no_report, ticket: Place | None = None
    ) -> Iterator[Engines]:
        """One at a time: cells behind a fit wait here, then meet ranks that can communicate.

        Args:
            report: called when there is something to wait for.
            ticket: drawn before; now when None.

        Raises:
            ClusterError: the ranks have been stopped or started anew meanwhile, or have died.
        """
        engines = self._alive()
        ticket = ticket or self.draw()
        try:
            if not self._is_first(ticket, 0):
                report(f"waiting for {self.before(ticket)} to end")
                self._wait_for_turn(ticket)
            if self.closed:
                raise ClusterError("The cluster was stopped or restarted while this waited.")
            if isinstance(self.running, Execution):
                report("waiting for the interrupted cell to end")
                self.follow(self.running)
            if gone := [rank for rank in engines.dead() if rank not in engines.lost]:
                raise self.death(engines, gone)  # at rest
            self._recover(engines)
            yield engines
        except RanksDied as death:  # before they could be asked
            raise self.death(engines, death.ranks) from None
        finally:
            self.give_back(ticket)

    def follow(self, execution: Execution, timeout: float | None = None) -> None:
        """Waits for an execution, and mends the cluster where it can when that fails.

        Raises:
            DeathError: ranks died.
            ClusterError: ranks could not be freed: all were started anew.
        """
        engines = self._alive()
        self.running = execution
        try:
            execution.wait(timeout)
        except Abandoned:
            self.needs_recovery = True
            raise  # it stays the running one: the next cell waits for it
        except RanksDied as death:
            self._ended(execution)
            raise self.death(engines, death.ranks) from None
        except RanksStuck as stuck:
            self._ended(execution)
            raise self._free_by_restart(engines, execution, stuck) from None
        except ClusterError:
            self._ended(execution)
            raise
        self._ended(execution)

    @contextmanager
    def several(self) -> Iterator[Several]:
        """Around executions side by side, for which others wait. After it ranks may have failed."""
        self.running = several = Several()
        try:
            yield several
        finally:
            self.running = None
            self.needs_recovery = True

    def _wait_for_turn(self, ticket: Place) -> None:
        try:
            while not self._is_first(ticket, _TURN_TICK_S):  # so that Ctrl-C is heard
                pass
        except KeyboardInterrupt:
            raise Interrupted(
                "This cell waits no longer, and was not sent to the ranks; what it waited for goes "
                "on."
            ) from None

    def _is_first(self, ticket: Place, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._tickets[0] is ticket, timeout_s)

    def _recover(self, engines: Engines) -> None:
        if self.needs_recovery and engines.record.ranks > 1 and engines.living:
            recovery = Execution(engines, engines.living).call(Call.RECOVER)
            self.follow(recovery, timeout=_RECOVER_S)
            if recovery.failures:
                raise rank_error(recovery.failures)
        self.needs_recovery = False

    def _ended(self, execution: Execution) -> None:
        # Another one may run by now, where a person did not wait for the end of this one.
        if self.running is execution:
            self.running = None
            self.needs_recovery = self.needs_recovery or bool(execution.failures)

    def death(self, engines: Engines, known: list[int]) -> DeathError:
        """The error of ranks that have died, which are lost from now on.

        Args:
            known: of which it is known; others may have died with them.
        """
        ranks = engines.deaths(known)
        why, words = engines.last_words(ranks)
        engines.end(ranks)
        engines.lost.update(ranks)
        self.needs_recovery = True
        living = engines.living if engines.survives else []
        if with_host := engines.of_lost_hosts():
            ranks, why = with_host, ": the host was lost"
        return death_error(ranks, engines.record.seats, why, living, words)

    def _free_by_restart(
        self, engines: Engines, execution: Execution, stuck: RanksStuck
    ) -> ClusterError:
        failures = execution.failures
        raised = rank_error(failures) if failures else RankError("It was interrupted.")
        print(f"restarting the engines: {ranks_label(stuck.stuck)} cannot be freed", flush=True)
        tails = LogTails(engines.folder, [None] * engines.record.ranks)
        execution.request_stacks()
        time.sleep(_STACKS_WAIT_S)
        stacks = dict(tails.new())
        self._restart()
        return stuck_error(raised, {rank: stacks.get(rank, "") for rank in stuck.stuck})
