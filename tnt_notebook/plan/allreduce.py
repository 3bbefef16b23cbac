"""What an allreduce takes, by closed formulas: for any number of ranks at once.

On a network by levels it is done level by level. Of 4 ranks on 2 nodes, with a vector of ``n``::

    ranks of a node     each adds up n / 2 of the vector       reduce-scatter
    same ranks of both  exchange their n / 2                   allreduce
    ranks of a node     give each other their n / 2            allgather

Chunks of the vector follow each other through the levels. So latencies add up, and the slowest
level sets the rate.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", IJHPCA 19(1), 2005, section 4; P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", JPDC 69(2), 2009, on the ring.
"""

from __future__ import annotations

import functools
import math

from tnt_notebook.plan.network import Link, Network


def ring(link: Link, ranks: int) -> Link:
    """Around a ring: ``2 (p - 1)`` messages, one after another, of ``n / p`` each."""
    hops = 2 * (ranks - 1)
    return Link(hops * link.latency_s, link.bytes_per_s * ranks / hops)


def halving(link: Link, ranks: int) -> Link:
    """By recursive halving, and doubling: as many bytes as the ring sends, in ``2 log2 p`` rounds.
    Where ``p`` is no power of two, some go in pairs: the two exchange halves of the vector, one
    hands its half over, and gets the whole one in the end."""
    rounds = ranks.bit_length() - 1
    core = 1 << rounds
    paired = core < ranks
    sent = 2 * (core - 1) / core + 2 * paired
    return Link((2 * rounds + 3 * paired) * link.latency_s, link.bytes_per_s / sent)


def allreduce(over: Link | Network, ranks: int, apart: int = 1, bytes: float = 0) -> Link:
    """What an allreduce takes among so many ranks, at least two.

    Args:
        over: of a link, the latency is that of the whole exchange, as it was measured, and a rank
            sends nearly twice the bytes: the least that any algorithm can.
        apart: every so many ranks one takes part; the others do the same at the same time.
        bytes: of the vector that the algorithm of each level is chosen for: the faster one.
    """
    if isinstance(over, Link):
        return Link(over.latency_s, over.bytes_per_s * ranks / (2 * (ranks - 1)))
    return _by_levels(over, ranks, apart, bytes)


@functools.cache
def _by_levels(network: Network, ranks: int, apart: int, bytes: float) -> Link:
    latency_s, seconds_per_byte = 0.0, 0.0
    groups, below = ranks, 1  # of those who take part; and the ranks of a group below
    for level in network.levels:
        wider = 1 if level.ranks is None else min(groups, -(-ranks * apart // level.ranks))
        members, slices = -(-groups // wider), ranks // groups
        if members > 1:
            # All ranks of a group below are busy with this exchange, or one beside it.
            busy = min(below, ranks * apart)
            rate = min(level.link.bytes_per_s, (level.port_bytes_per_s or math.inf) / busy)
            link = Link(level.link.latency_s, rate)
            own = min(
                (make(link, members) for make in (ring, halving)),
                key=lambda link: link.seconds(bytes / slices),
            )
            latency_s += own.latency_s
            seconds_per_byte = max(seconds_per_byte, 1 / (slices * own.bytes_per_s))
        groups, below = wider, level.ranks or below
    return Link(latency_s, 1 / seconds_per_byte if seconds_per_byte else math.inf)
