"""What connects the ranks of a world: their links, and the engine that moves operations over them.

It is opened anew after a failure (:mod:`tnt_notebook.comm.recovery`); what communicators have of
it, the numbers of groups and channels, stays.
"""

from __future__ import annotations

import itertools
import platform
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tnt_notebook.choices import TRANSPORTS, is_rate
from tnt_notebook.comm import _kernels, channels, links, mpi
from tnt_notebook.errors import CommunicationError, PeerError, TimedOutError

if TYPE_CHECKING:
    from mpi4py import MPI


class Prepared(NamedTuple):
    """A collective that has been called before."""

    operation: _kernels.Operation
    label: str
    opaque: bool  # NumPy shows memory of this dtype only as that of another


class Connection:
    """Of one rank. Made on all ranks at once, and not open.

    Attributes:
        world: number by which TensorFlow ops find it.
        parent: the communicator of the ranks; ``None``: one rank.
        engine: what moves operations.
        links: how the ranks reach each other.
        lane_links: private communicators, one for each lane of the engine.
        hosts: of each rank, the name of its host.
        all_seats: how many ranks there were in the beginning.
        seats: of each rank, its seat: the rank that it had in the beginning.
        hosts_of_seats: the host of each seat that has had a rank.
        generation: changes with the seats.
        groups: the ranks of each group, by its number; those of this generation.
        rules: which algorithm for which collective, as the backend takes it.
        channels_taken: of :data:`tnt_notebook.comm.channels.MADE`.
        abandoned: memory of calls that were interrupted.
    """

    _worlds = itertools.count()

    def __init__(
        self,
        parent: MPI.Intracomm | None,
        transport: str,
        lanes: int,
        link_mbit: float | str | None,
        timeout_s: float,
    ) -> None:
        if not 1 <= lanes <= _kernels.max_lanes:
            raise ValueError(f"lanes must be 1 to {_kernels.max_lanes}, not {lanes}")
        if transport not in TRANSPORTS:
            raise ValueError(f"transport {transport!r} is not one of {', '.join(TRANSPORTS)}")
        if link_mbit is not None and not is_rate(link_mbit):
            raise ValueError(f"a link has a number of Mbit/s above 0, not {link_mbit!r}")
        self.transport, self.lanes, self.timeout_s = transport, lanes, timeout_s
        self.link_mbit = None if link_mbit is None else float(link_mbit)
        self.world = next(Connection._worlds)
        self.parent: MPI.Intracomm | None = None
        if parent is not None:
            with mpi.turn():
                self.parent = parent.Dup()
        self.all_seats = 1 if parent is None else parent.size
        self.seats = tuple(range(self.all_seats))
        self.hosts_of_seats: dict[int, str] = {}
        self.generation = 0
        self.groups: dict[int, tuple[int, ...]] = {}
        self.rules: list[_kernels.Rule] = _kernels.default_rules()
        self.channels_taken = 0
        self.lane_links: list[MPI.Comm] = []
        self.abandoned: list[Any] = []
        self._prepared: dict[int, dict[Any, Prepared]] = {}
        self._group_numbers = itertools.count(1)

    def open(self) -> None:
        """Collective."""
        if self.parent is None:
            transports = [_kernels.lonely_transport()]
            self.links = links.Links(self.transport, (0,), "mpi", "there is one rank")
            self.hosts: tuple[str, ...] = (platform.node(),)
        else:
            self.hosts = tuple(
                links.agree(self.parent, self.transport, self.lanes, self.link_mbit, self.timeout_s)
            )
            with mpi.turn():
                self.lane_links = [self.parent.Dup() for _ in range(self.lanes)]
            transports, self.links = links.open_links(
                self.parent, self.lane_links, self.transport, self.link_mbit, self.timeout_s
            )
        self.engine = _kernels.engine(transports, list(self.links.node), self.timeout_s)
        self.hosts_of_seats.update(zip(self.seats, self.hosts, strict=True))
        self.engine.set_places(
            [
                f"on {host}" if rank == seat else f"on {host} (seat {seat})"
                for rank, (host, seat) in enumerate(zip(self.hosts, self.seats, strict=True))
            ]
        )
        self.engine.set_rules(self.rules)
        for number, ranks in self.groups.items():
            self.engine.add_group(number, ranks)
        self._prepared.clear()
        _kernels.register_engine(self.world, self.engine)
        # Also at exit, before MPI is finalized.
        self.close = weakref.finalize(self, _close, self.world, self.engine)

    @property
    def rank(self) -> int:
        """Of this process among those that live."""
        return self.engine.rank

    def set_seats(self, seats: tuple[int, ...]) -> None:
        """Begins another generation: the ranks are numbered anew, and groups are gone."""
        self.seats = seats
        self.generation += 1
        self.groups.clear()

    def add_group(self, ranks: tuple[int, ...]) -> int:
        """The number of a group, on this rank; it is never given again."""
        number = next(self._group_numbers)
        self.groups[number] = ranks
        self.engine.add_group(number, ranks)
        return number

    def take_channel(self, taken: int) -> int:
        """A channel for what is made by ranks of which one at least has taken ``taken`` channels,
        and none more."""
        self.channels_taken = taken + 1
        return channels.MADE[taken]

    def prepared(self, group: int) -> dict[Any, Prepared]:
        """Collectives of a group (0: of all ranks), by what makes a call a different one."""
        return self._prepared.setdefault(group, {})

    def carry_out(self, prepared: Prepared, array: np.ndarray, output: np.ndarray | None) -> None:
        """One collective; raises if it does not complete."""
        try:
            failure = prepared.operation(self.engine, array, output)
        except BaseException as error:
            if not refused(error, prepared.operation.is_busy(self.engine)):
                # The backend may still write there; and the other ranks are out of step now.
                self.abandoned.append((array, output))
                self.abort(f"rank {self.rank}: {type(error).__name__} in {prepared.label}")
            raise
        if failure:
            raise self.error(prepared.label)

    @property
    def failure(self) -> str | None:
        """Why communication has ended, or ``None``."""
        return self.engine.failure or None

    @property
    def failed_here(self) -> bool:
        """Whether communication has ended by an error that this rank has raised."""
        return not self.engine.stalled and self._names_this_rank()

    def _names_this_rank(self) -> bool:
        return self.engine.failure.startswith(f"rank {self.rank}:")

    def abort(self, reason: str) -> None:
        """Ends all waiting on all ranks: their collectives raise PeerError with ``reason``."""
        whole_letters = reason.encode(errors="replace")[: _kernels.max_notice_bytes]
        self.engine.abort(whole_letters.decode(errors="ignore"))

    def error(self, label: str) -> Exception:
        """The exception that says why ``label`` did not complete on this rank."""
        reason = self.failure or "communication is closed"
        if self._names_this_rank():
            kind = TimedOutError if self.engine.stalled else CommunicationError
            return kind(f"{reason} ({label})")
        return PeerError(f"rank {self.rank} was freed from waiting in {label}, because {reason}")


def refused(error: BaseException, is_busy: bool) -> bool:
    """Whether a call was not carried out: then the ranks are still in step.

    What a signal handler raises may look the same, but leaves the operation under way.
    """
    return isinstance(error, ValueError | IndexError | TypeError) and not is_busy


def _close(world: int, engine: _kernels.Engine) -> None:
    engine.close()
    _kernels.register_engine(world, None)
