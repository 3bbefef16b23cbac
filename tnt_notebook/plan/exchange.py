"""How much longer a step is since ranks add up gradients."""

from __future__ import annotations

from collections.abc import Sequence

from tnt_notebook.plan.allreduce import BUCKET, allreduce, exchange_s
from tnt_notebook.plan.network import Link, Network
from tnt_notebook.plan.simulate import Timeline


def exchange_after(
    timeline: Timeline,
    rank_of: Sequence[int],
    gradients: Sequence[tuple[int, int]],
    replicas: int,
    alike: int,
    link: Link | Network,
    sharded: bool = False,
) -> float:
    """How much longer a step is since ranks add up gradients, from the last micro-batch that goes
    back on a rank.

    Args:
        rank_of: of each stage.
        gradients: of each stage, bytes in all, and of those that all ranks add up which work on the
            stage; the others replicas do.
        replicas: that share a batch.
        alike: ranks that work on the same stage at the same time.
        sharded: whether replicas add up gradients of a weight on its owner alone, which gives the
            others the new weight in the end: a reduce-scatter and, with nothing behind which it
            could go on, an allgather, each half of an allreduce.
    """
    if alike == 1:
        return 0.0
    ends = timeline.seconds
    lasts = {span.rank: span for span in timeline.spans if span.action.kind in "BW"}
    for rank, last in lasts.items():
        own = [of for of, r in zip(gradients, rank_of, strict=True) if r == rank]
        summed = sum(part for _, part in own)
        all_of_it, tail, given = 0.0, 0.0, 0.0
        for among, bytes in ((replicas, sum(whole for whole, _ in own) - summed), (alike, summed)):
            if among > 1 and bytes:
                apart = timeline.ranks * alike // among
                whole = allreduce(link, among, apart, BUCKET)
                half = Link(whole.latency_s / 2, 2 * whole.bytes_per_s)
                shared = sharded and among == replicas
                seconds, latest = exchange_s(bytes, half if shared else whole)
                all_of_it, tail = all_of_it + seconds, max(tail, latest)
                given += seconds if shared else 0.0
        ends = max(ends, last.begin + all_of_it + given, last.end + tail + given)
    return ends - timeline.seconds
