"""What a collective takes by its schedule: all ranks are replayed on a model of a machine, message
by message, without hardware (``kernels/checker/cost.h``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tnt_notebook.comm import _kernels
from tnt_notebook.comm.schedules import Task


@dataclass(frozen=True)
class Rates:
    """What a message and a byte take.

    Attributes:
        node_latency_s, node_bytes_per_s: of a message between ranks that share memory.
        latency_s, bytes_per_s: of one between nodes; a rank sends one at a time.
        port_bytes_per_s: that all ranks of a node send out of it together, and take in.
        reduced_bytes_per_s, copied_bytes_per_s: of one rank.
    """

    node_latency_s: float = 0.3e-6
    node_bytes_per_s: float = 5e9
    latency_s: float = 2e-6
    bytes_per_s: float = 12e9
    port_bytes_per_s: float = 12e9
    reduced_bytes_per_s: float = 10e9
    copied_bytes_per_s: float = 10e9


def allreduce_s(
    algorithm: str,
    size: int,
    count: int,
    rates: Rates,
    *,
    node: Sequence[int] = (),
    element_bytes: int = 4,
) -> float:
    """Seconds until an allreduce in place has finished on the last rank. It takes memory for the
    steps of all ranks: 6 million of a ring of 1,000.

    Args:
        algorithm: one of ``schedules.names("allreduce")``.
        size: ranks.
        count: elements of the vector.
        node: number of each rank's node; without it, each rank has one to itself.

    Raises:
        ValueError: there is no such algorithm, or its schedule never ends.
    """
    task = Task(
        "allreduce", 0, size, count, element_bytes, node=tuple(node or range(size)), in_place=True
    )
    return max(_kernels.predict(algorithm, task, rates))
