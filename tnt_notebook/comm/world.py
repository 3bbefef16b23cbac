"""The ranks of this program."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tnt_notebook.comm import _kernels, channels, clocks, links, mpi, recovery, rules, survival
from tnt_notebook.comm.communicator import Communicator
from tnt_notebook.comm.connection import Connection
from tnt_notebook.errors import CommunicationError
from tnt_notebook.protocol import LANES, LINK, TRANSPORT
from tnt_notebook.telemetry.events import EVENT

if TYPE_CHECKING:
    from mpi4py import MPI

DEFAULT_TIMEOUT_S = 600.0


class World(Communicator):
    """All ranks, each a process.

    After a failure all calls raise until all ranks have called :meth:`recover`. Where ranks outlive
    the death of others (:func:`tnt_notebook.comm.survives`), it makes a world of those that live.

    Args:
        communicator: an mpi4py communicator, duplicated here; ``None``: this process alone.
        timeout_s: seconds that an operation may wait for one message.
        transport: one of :data:`tnt_notebook.choices.TRANSPORTS`; default: what the environment
            variable ``TNT_TRANSPORT`` says, or ``"auto"``.
        lanes: how many progress threads; default: ``TNT_LANES``, or 1. More than one pays where
            several large buckets are under way together and there are cores to spare.
        link_mbit: emulates a slow network: each rank sends at this rate, in Mbit/s, as from a host
            of its own; default: what ``TNT_LINK`` says, or as fast as it can.

    Attributes:
        rules: those that measurements have left, see :mod:`tnt_notebook.comm.rules`.
    """

    def __init__(
        self,
        communicator: MPI.Intracomm | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        transport: str | None = None,
        lanes: int | None = None,
        link_mbit: float | None = None,
    ) -> None:
        connection = Connection(
            communicator,
            transport or os.environ.get(TRANSPORT, "auto"),
            lanes or int(os.environ.get(LANES, "1")),
            os.environ.get(LINK) if link_mbit is None else link_mbit,
            timeout_s,
        )
        super().__init__(connection, channels.EAGER.first)
        self.rules: list[rules.Rule] = []
        connection.open()
        try:
            self.load_rules()
            self.recover()  # a barrier: a rank that fails next must find the others' world complete
        except BaseException:
            self.close()
            raise

    @classmethod
    def joined(cls, by: MPI.Intercomm, timeout_s: float = DEFAULT_TIMEOUT_S) -> World:
        """The world of a process that other ranks have started to take a seat: see :meth:`grow`.

        Args:
            by: those ranks, ``MPI.Comm.Get_parent()``.
        """
        world = cls(None, timeout_s)
        recovery.join(world._connection, by)
        world.load_rules()
        return world

    def __repr__(self) -> str:
        return f"<World: rank {self.rank} of {self.size}, {self.links.describe()}>"

    @property
    def links(self) -> links.Links:
        """How the ranks reach each other."""
        return self._connection.links

    @property
    def lanes(self) -> int:
        """How many progress threads there are."""
        return self._connection.lanes

    @property
    def hosts(self) -> tuple[str, ...]:
        """Of each rank, the name of its host."""
        return self._connection.hosts

    # -- seats ------------------------------------------------------------------------------------

    @property
    def seats(self) -> tuple[int, ...]:
        """Of each rank, its seat: the rank that it had in the beginning."""
        return self._connection.seats

    @property
    def lost(self) -> tuple[int, ...]:
        """The seats of the ranks that have died."""
        return tuple(s for s in range(self._connection.all_seats) if s not in self.seats)

    @property
    def generation(self) -> int:
        """Changes with the seats; groups, and what goes by rank and size, are of one generation."""
        return self._connection.generation

    @property
    def can_grow(self) -> bool:
        """Whether :meth:`grow` is possible. Over several hosts Open MPI 5.0's mpiexec crashes now
        and then when it starts ranks of a job that runs; and GASPI starts once in a process.
        """
        hosts = set(self._connection.hosts_of_seats.values())
        return survival.survives() and len(hosts) == 1 and self.links.network != "gpi"

    def seats_beside(self, seat: int) -> list[int]:
        """The seats on a seat's host, itself among them."""
        hosts = self._connection.hosts_of_seats
        return [other for other in sorted(hosts) if hosts[other] == hosts[seat]]

    # -- settings ---------------------------------------------------------------------------------

    def load_rules(self) -> None:
        """Takes the saved rules, as rank 0 reads them; done when a world is made, too. Collective,
        while nothing is under way.

        Raises:
            RulesError: on all ranks; the rules stay as they were.
        """
        self.rules = rules.agreed(self)
        self._connection.rules = rules.for_engine(self.rules)
        self._connection.engine.set_rules(self._connection.rules)

    def set_timeout(self, timeout_s: float) -> None:
        """Sets how many seconds an operation may wait for one message, from now on."""
        if not timeout_s > 0:
            raise ValueError(f"the time-out must be a positive number of seconds, not {timeout_s}")
        self._connection.timeout_s = timeout_s
        self._connection.engine.set_timeout(timeout_s)

    # -- failures ---------------------------------------------------------------------------------

    def recover(self) -> None:
        """Makes communication work again after a failure. Collective; nothing to do is cheap.

        Buckets made before a failure are not usable after it; groups are, unless a rank has died:
        the ranks that live are then numbered anew, in the same order.

        Raises:
            CommunicationError: a rank that lives does not come, or there are no links between them.
        """
        recovery.recover(self._connection)

    def apart(self, color: int) -> World:
        """A world of its own of the ranks that give the same color, numbered anew. Collective.

        Unlike a group (:meth:`split`) it has links and an engine of its own: what fails in it, or
        dies, ends nothing in the others, and it recovers by itself. It can lose ranks, and get no
        new ones. Close it when all of them are done with it.

        Raises:
            CommunicationError: there are no links between its ranks.
        """
        connection, communicator = self._connection, None
        if (parent := connection.parent) is not None:
            order = self.rank
            split: Any = survival.bounded(lambda: parent.Split(color, order), "part")
            communicator = split if split.size > 1 else None
        try:
            return World(
                communicator, self.timeout_s, connection.transport, connection.lanes,
                connection.link_mbit,
            )  # fmt: skip
        finally:
            if parent is not None:
                with mpi.turn():
                    split.Free()  # the world has its own

    def grow(self, command: Callable[[int], Sequence[str]]) -> None:
        """Starts ranks for the seats that are vacant, on the hosts where they were. Collective.

        They take part when they ask for their world, and all ranks are numbered by seat again. The
        new ranks know nothing of the program so far; groups and buckets of before are gone.

        Args:
            command: program and arguments of the rank that takes a seat.

        Raises:
            CommunicationError: the job cannot start ranks, or they do not come.
        """
        if not self.lost:
            return
        if not self.can_grow:
            raise CommunicationError(
                "Ranks can be started for others that have died in jobs that outlive these, on one "
                "host, and not over GPI-2. Restart the cluster."
            )
        recovery.grow(self._connection, command)
        self.load_rules()

    # -- beside the collectives -------------------------------------------------------------------

    def notify(self, peer: int, kind: int, payload: bytes) -> None:
        """Sends a small message (at most 8 KB) to one rank, without waiting."""
        if not 0 <= peer < self.size:
            raise ValueError(f"rank {peer} is not one of 0 to {self.size - 1}")
        self._connection.engine.notify(peer, _kernels.first_user_kind + kind, payload)

    def notices(self) -> list[tuple[int, int, bytes]]:
        """What :meth:`notify` has brought here since the last call: (source, kind, payload)."""
        found = iter(self._connection.engine.take_notice, None)
        return [(source, kind - _kernels.first_user_kind, data) for source, kind, data in found]

    def trace(self, since: int = 0) -> np.ndarray:
        """The newest events on this rank, an array of dtype :data:`EVENT`.

        Args:
            since: events that are left out, as :meth:`traced` has counted them.
        """
        return np.frombuffer(self._connection.engine.trace(since), EVENT)

    def traced(self) -> int:
        """How many events there have been; the trace remembers the newest of them."""
        return self._connection.engine.traced()

    def compare_clocks(self) -> clocks.Clocks:
        """How far the clocks of other hosts are ahead of rank 0's. Collective."""
        if self._connection.parent is None:
            return clocks.Clocks(np.zeros(1, np.int64), 0)
        return clocks.compare(self._connection.parent, self.links.node, self.timeout_s)

    def record_step(self, begin_ns: int, end_ns: int, phase: int = 0) -> None:
        """Puts a step into the trace; its phase is one of
        :data:`tnt_notebook.telemetry.events.PHASES`, by number, and
        :data:`~tnt_notebook.telemetry.events.FIRST` for the first of an epoch."""
        self._connection.engine.record_step(begin_ns, end_ns, phase)

    def close(self) -> None:
        """Stops the progress threads; the other ranks are not told."""
        self._connection.close()

    def leave_failed(self, grace_s: float) -> None:
        """Before this process exits with an error: waits until the other ranks do so as well, and
        ends the MPI job if one has not after ``grace_s`` seconds (MPI_Finalize would wait for it).
        """
        parent = self._connection.parent
        if parent is None:
            return
        from mpi4py import MPI

        try:
            mpi.carry_out(parent.Ibarrier, grace_s, "leaving")
        except (CommunicationError, MPI.Exception):
            MPI.COMM_WORLD.Abort(1)
