"""What ranks exchange with: one link for all of them, or a network by levels.

::

    level     of it                     a rank of it has
    node      4 ranks on one node       a link to the others on the node
    fabric    all nodes                 a link to other nodes; and all of a node share its port

Ranks follow each other: those of a node, those of the next one. Plain numbers, that the notebook
reads from a file (:mod:`.network_file`) and rank 0 gets.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Link(NamedTuple):
    """What a message, or an exchange as a whole, takes: a latency, and its bytes by the rate.

    Attributes:
        latency_s: that it takes at least.
        bytes_per_s: that a rank sends; infinite: no bytes are too many.
    """

    latency_s: float
    bytes_per_s: float

    def seconds(self, bytes: float, messages: int = 1) -> float:
        """Of so many bytes, in so many messages one after another."""
        return messages * self.latency_s + bytes / self.bytes_per_s


#: A fast network, or the memory of a node: what is assumed where nothing was measured.
ASSUMED = Link(3e-5, 2e9)


class Level(NamedTuple):
    """Ranks that reach each other in the same way.

    Attributes:
        name: of a group of them, for people.
        ranks: of a group; None: all that there are.
        link: of each rank, to those of the group that are in no smaller one with it.
        port_bytes_per_s: that the ranks of a smaller group send out of it together, and take in;
            None: each has a port to itself.
    """

    name: str
    ranks: int | None
    link: Link
    port_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Network:
    """Levels, the innermost first. The ranks of a group are a multiple of those of a smaller one.

    Attributes:
        about: what it is, in a line.
    """

    about: str
    levels: tuple[Level, ...]

    @property
    def most_ranks(self) -> int | None:
        """How many it has; None: any number."""
        return self.levels[-1].ranks


def message(network: Network, sender: int, receiver: int) -> Link:
    """Of one rank to another, while no other sends out of its group."""
    for level in network.levels:
        if level.ranks is None or sender // level.ranks == receiver // level.ranks:
            rate = min(level.link.bytes_per_s, level.port_bytes_per_s or level.link.bytes_per_s)
            return level.link._replace(bytes_per_s=rate)
    raise ValueError(f"the ranks {sender} and {receiver} are in no group of {network.about}")


@functools.cache
def between_stages(
    network: Network, stages: int, replicas: int, maker: int, user: int, parts: int = 1
) -> Link:
    """Of one rank of a pipeline to another, in the pipeline in which that takes longest: its ranks
    follow each other, so some may cross the border of a node where others do not. Only one pair of
    neighbours crosses a border, so it has the port to itself.

    Args:
        stages: ranks of a pipeline.
        maker, user: ranks in it.
        parts: ranks that divide the work of each of them, and follow each other.
    """
    largest = max((level.ranks for level in network.levels if level.ranks is not None), default=1)
    begins = [stages * replica for replica in range(min(replicas, largest))]
    links = {message(network, parts * (begin + maker), parts * (begin + user)) for begin in begins}
    return max(links, key=lambda link: (1 / link.bytes_per_s, link.latency_s))


def slowest_neighbours(network: Network, stages: int, replicas: int, parts: int = 1) -> Link:
    """What a message takes at most from a rank of a pipeline to the next one."""
    links = {between_stages(network, stages, replicas, s, s + 1, parts) for s in range(stages - 1)}
    return max(links, key=lambda link: (1 / link.bytes_per_s, link.latency_s))


def as_json(network: Network) -> dict[str, Any]:
    """A network as JSON values."""
    return {
        "about": network.about,
        "levels": [[at.name, at.ranks, *at.link, at.port_bytes_per_s] for at in network.levels],
    }


def from_json(data: Mapping[str, Any]) -> Network:
    """The network that :func:`as_json` made data of."""
    levels = (
        Level(name, ranks, Link(latency_s, bytes_per_s), port)
        for name, ranks, latency_s, bytes_per_s, port in data["levels"]
    )
    return Network(data["about"], tuple(levels))
