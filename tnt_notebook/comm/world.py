"""The ranks of this program, and collectives on NumPy arrays between them."""

from __future__ import annotations

import itertools
import os
import platform
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tnt_notebook.comm import channels, clocks, links, mpi, recovery, rules, survival
from tnt_notebook.comm.collectives import Collectives, Prepared
from tnt_notebook.comm.groups import Bucket, Group, refused
from tnt_notebook.errors import CommunicationError, PeerError
from tnt_notebook.telemetry.events import EVENT

if TYPE_CHECKING:
    from mpi4py import MPI

    from tnt_notebook.comm import _kernels

DEFAULT_TIMEOUT_S = 600.0


class World(Collectives):
    """Ranks that work together, each a process.

    After a failure all calls raise until all ranks have called :meth:`recover`. Where ranks outlive
    the death of others (:func:`tnt_notebook.comm.survives`), it makes a world of those that live.

    Args:
        communicator: an mpi4py communicator, duplicated here; ``None``: this process alone.
        timeout_s: seconds that an operation may wait for one message.
        transport: one of :data:`tnt_notebook.choices.TRANSPORTS`; default: what the environment
            variable ``TNT_TRANSPORT`` says, or ``"auto"``.
        lanes: how many progress threads; default: ``TNT_LANES``, or 1. More than one pays where
            several large buckets are under way together and there are cores to spare.

    Attributes:
        rank, size: place of this process, and how many there are.
        members: of each rank, its seat: the rank that it had in the beginning.
        era: changes with the members; groups, and what goes by rank and size, are of one era.
        hosts: of each rank, the name of its host.
        id: number by which TensorFlow ops find this world.
        links: how the ranks reach each other.
        rules: those that measurements have left, see :mod:`tnt_notebook.comm.rules`.
    """

    _ids = itertools.count()

    def __init__(
        self,
        communicator: MPI.Intracomm | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        transport: str | None = None,
        lanes: int | None = None,
    ) -> None:
        self.id = next(World._ids)
        self.timeout_s = timeout_s
        self._transport = links.checked(transport or os.environ.get("TNT_TRANSPORT", "auto"))
        self._lanes = _checked_lanes(lanes or int(os.environ.get("TNT_LANES", "1")))
        self._lock = threading.Lock()
        self._abandoned: list[Any] = []  # memory of calls that were interrupted
        self._groups: list[list[int]] = []
        self.era = 0
        self._channels_taken = 0
        self._links: list[MPI.Comm] = []
        self._parent: MPI.Intracomm | None = None
        if communicator is not None:
            with mpi.turn():
                self._parent = communicator.Dup()
        self._seats = 1 if communicator is None else communicator.size
        self.members = tuple(range(self._seats))
        self._hosts_of_seats: dict[int, str] = {}
        self.rules: list[rules.Rule] = []
        self._open()
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
        recovery.join(world, by)
        return world

    def __repr__(self) -> str:
        return f"<World: rank {self.rank} of {self.size}, {self.links.describe()}>"

    @property
    def node(self) -> tuple[int, ...]:
        """The number of each rank's node; ranks of one node share memory."""
        return self.links.node

    @property
    def lost(self) -> tuple[int, ...]:
        """The seats of the ranks that have died."""
        return tuple(seat for seat in range(self._seats) if seat not in self.members)

    @property
    def can_grow(self) -> bool:
        """Whether :meth:`grow` is possible. Over several hosts Open MPI 5.0's mpiexec crashes now
        and then when it starts ranks of a job that runs; and GASPI starts once in a process.
        """
        hosts = set(self._hosts_of_seats.values())
        return survival.survives() and len(hosts) == 1 and self.links.network != "gpi"

    def seats_beside(self, seat: int) -> list[int]:
        """The seats on a seat's host, itself among them."""
        hosts = self._hosts_of_seats
        return [other for other in sorted(hosts) if hosts[other] == hosts[seat]]

    @property
    def lanes(self) -> int:
        """How many progress threads there are."""
        return self._engine.lanes

    def split(self, color: int) -> Group:
        """A group of the ranks that give the same color. Collective over the world.

        Groups have the collectives of a world, at the same speed. Several may be used at once, each
        by a thread of its own, and beside the world.
        """
        colors = self.gather_numbers(color)
        members = [rank for rank, other in enumerate(colors) if other == color]
        self._groups.append(members)
        self._group_ids.append(self._engine.add_group(members))
        self._prepared_of_groups.append({})
        return Group(self, len(self._groups) - 1, self._next_channel())

    def bucket(self, count: int, dtype: Any = "float32") -> Bucket:
        """Memory that the other ranks of this node reach, for an allreduce in place. Collective.

        Args:
            count: elements.
            dtype: one of the dtypes that can be exchanged.
        """
        return Bucket(self, count, np.dtype(dtype), self._next_channel())

    def load_rules(self) -> None:
        """Takes the saved rules, as rank 0 reads them; done when a world is made, too. Collective,
        while nothing is under way.

        Raises:
            RulesError: on all ranks; the rules stay as they were.
        """
        self.rules = rules.agreed(self)
        self._engine.set_rules(rules.for_engine(self.rules))

    def set_timeout(self, timeout_s: float) -> None:
        """Sets how many seconds an operation may wait for one message, from now on."""
        if not timeout_s > 0:
            raise ValueError(f"the time-out must be a positive number of seconds, not {timeout_s}")
        self.timeout_s = timeout_s
        self._engine.set_timeout(timeout_s)

    # -- failures ---------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """Why communication has ended, or ``None``."""
        return self._engine.failure or None

    def abort(self, reason: str) -> None:
        """Ends all waiting on all ranks: their collectives raise PeerError with ``reason``."""
        from tnt_notebook.comm import _kernels

        whole_letters = reason.encode(errors="replace")[: _kernels.max_notice_bytes]
        self._engine.abort(whole_letters.decode(errors="ignore"))

    def recover(self) -> None:
        """Makes communication work again after a failure. Collective; nothing to do is cheap.

        Buckets made before a failure are not usable after it; groups are, unless a rank has died:
        the ranks that live are then numbered anew, in the same order.

        Raises:
            CommunicationError: a rank that lives does not come, or there are no links between them.
        """
        if self._parent is None:
            if self.failure:
                self._close()
                self._open()
        elif survival.survives():
            recovery.recover_without_dead(self, self._parent)
        else:
            recovery.recover_with_all(self, self._parent)

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
        if self._parent is None or not self.can_grow:
            raise CommunicationError(
                "Ranks can be started for others that have died in jobs that outlive these, on one "
                "host, and not over GPI-2. Restart the cluster."
            )
        recovery.grow(self, self._parent, command)

    def error(self, label: str) -> Exception:
        """The exception that says why ``label`` did not complete on this rank."""
        reason = self.failure or "communication is closed"
        if reason.startswith(f"rank {self.rank}:"):
            return CommunicationError(f"{reason} ({label})")
        return PeerError(f"rank {self.rank} was freed from waiting in {label}, because {reason}")

    # -- beside the collectives -------------------------------------------------------------------

    def notify(self, peer: int, kind: int, payload: bytes) -> None:
        """Sends a small message (at most 8 KB) to one rank, without waiting."""
        from tnt_notebook.comm import _kernels

        if not 0 <= peer < self.size:
            raise ValueError(f"rank {peer} is not one of 0 to {self.size - 1}")
        self._engine.notify(peer, _kernels.first_user_kind + kind, payload)

    def notices(self) -> list[tuple[int, int, bytes]]:
        """What :meth:`notify` has brought here since the last call: (source, kind, payload)."""
        from tnt_notebook.comm import _kernels

        found = iter(self._engine.take_notice, None)
        return [(source, kind - _kernels.first_user_kind, data) for source, kind, data in found]

    def trace(self, since: int = 0) -> np.ndarray:
        """The newest events on this rank, an array of dtype :data:`EVENT`.

        Args:
            since: events that are left out, as :meth:`traced` has counted them.
        """
        return np.frombuffer(self._engine.trace(since), EVENT)

    def traced(self) -> int:
        """How many events there have been; the trace remembers the newest of them."""
        return self._engine.traced()

    def compare_clocks(self) -> clocks.Clocks:
        """How far the clocks of other hosts are ahead of rank 0's. Collective."""
        if self._parent is None:
            return clocks.Clocks(np.zeros(1, np.int64), 0)
        return clocks.compare(self._parent, self.links.node, self.timeout_s)

    def record_step(self, begin_ns: int, end_ns: int, phase: int = 0) -> None:
        """Puts a step into the trace; its phase is one of
        :data:`tnt_notebook.telemetry.events.PHASES`, by number."""
        self._engine.record_step(begin_ns, end_ns, phase)

    def close(self) -> None:
        """Stops the progress threads; the other ranks are not told."""
        self._close()

    def leave_failed(self, grace_s: float) -> None:
        """Before this process exits with an error: waits until the other ranks do so as well, and
        ends the MPI job if one has not after ``grace_s`` seconds (MPI_Finalize would wait for it).
        """
        if self._parent is None:
            return
        from mpi4py import MPI

        try:
            with mpi.turn():
                request = self._parent.Ibarrier()
            mpi.wait(request, grace_s, "leaving")
        except (CommunicationError, MPI.Exception):
            MPI.COMM_WORLD.Abort(1)

    # -- inside -----------------------------------------------------------------------------------

    def _open(self) -> None:
        from tnt_notebook.comm import _kernels

        if self._parent is None:
            transports = [_kernels.lonely_transport()]
            self.links = links.Links(self._transport, (0,), "mpi", "there is one rank")
            self.hosts: tuple[str, ...] = (platform.node(),)
        else:
            self.hosts = tuple(
                links.agree(self._parent, self._transport, self._lanes, self.timeout_s)
            )
            with mpi.turn():
                self._links = [self._parent.Dup() for _ in range(self._lanes)]
            transports, self.links = links.open_links(
                self._parent, self._links, self._transport, self.timeout_s
            )
        self._engine: _kernels.Engine = _kernels.engine(
            transports, list(self.links.node), self.timeout_s
        )
        self._hosts_of_seats.update(zip(self.members, self.hosts, strict=True))
        self.rank: int = self._engine.rank
        self.size: int = self._engine.size
        self._engine.set_places(
            [
                f"on {host}" if rank == seat else f"on {host} (seat {seat})"
                for rank, (host, seat) in enumerate(zip(self.hosts, self.members, strict=True))
            ]
        )
        self._engine.set_rules(rules.for_engine(self.rules))
        self._group_ids = [self._engine.add_group(ranks) for ranks in self._groups]
        self._prepared = {}
        self._prepared_of_groups: list[dict[Any, Any]] = [{} for _ in self._groups]
        _kernels.register_engine(self.id, self._engine)
        # Also at exit, before MPI is finalized.
        self._close = weakref.finalize(self, _close, self.id, self._engine)

    def _prepare(self, label: str, **request: Any) -> _kernels.Operation:
        from tnt_notebook.comm import _kernels

        return _kernels.Operation(
            engine=self._engine, channel=channels.EAGER.first, group=0, label=label, **request
        )

    def _run(self, prepared: Prepared, array: np.ndarray, output: np.ndarray | None) -> None:
        with self._lock:
            self._carry_out(prepared, array, output)

    def _carry_out(self, prepared: Prepared, array: np.ndarray, output: np.ndarray | None) -> None:
        try:
            failure = prepared.operation(self._engine, array, output)
        except BaseException as error:
            if not refused(error, prepared.operation.is_busy(self._engine)):
                # The backend may still write there; and the other ranks are out of step now.
                self._abandoned.append((array, output))
                self.abort(f"rank {self.rank}: {type(error).__name__} in {prepared.label}")
            raise
        if failure:
            raise self.error(prepared.label)

    def _next_channel(self) -> int:
        self._channels_taken += 1
        return channels.MADE[self._channels_taken - 1]


def _close(world: int, engine: _kernels.Engine) -> None:
    from tnt_notebook.comm import _kernels

    engine.close()
    _kernels.register_engine(world, None)


def _checked_lanes(lanes: int) -> int:
    from tnt_notebook.comm import _kernels

    if not 1 <= lanes <= _kernels.max_lanes:
        raise ValueError(f"lanes must be 1 to {_kernels.max_lanes}, not {lanes}")
    return lanes
