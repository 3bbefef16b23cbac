"""What ranks exchange with."""

from __future__ import annotations

from typing import NamedTuple


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


def allreduce(link: Link, ranks: int) -> Link:
    """What an allreduce takes, of which a rank sends nearly twice the bytes: the least that any
    algorithm can send (Thakur, Rabenseifner and Gropp, 2005, section 4)."""
    return Link(link.latency_s, link.bytes_per_s * ranks / (2 * (ranks - 1)))


#: A fast network, or the memory of a node: what is assumed where nothing was measured.
ASSUMED = Link(3e-5, 2e9)
