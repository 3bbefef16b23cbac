"""Engines that take the seats of those that have died, started by the ones that live."""

from __future__ import annotations

import sys

from tnt_notebook import comm, protocol


def fill_seats() -> list[int]:
    """Starts an engine for each vacant seat, as this one was started. Collective over the ranks
    that live, after they have recovered; the engines register a moment later, with their seat as
    id.

    Returns:
        The seats that have a rank now.

    Raises:
        CommunicationError: ranks cannot be started.
    """
    world = comm.world()
    world.grow(_command)
    return list(world.seats)


def _command(seat: int) -> list[str]:
    neighbours = comm.world().seats_beside(seat)
    return [
        *(sys.executable, "-m", protocol.ENGINE, *sys.argv[1:]),
        f"--seat={seat}",
        f"--local-rank={neighbours.index(seat)}",
        f"--local-size={len(neighbours)}",
    ]
