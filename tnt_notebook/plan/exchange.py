"""How much longer a step is since ranks add up gradients, bucket by bucket, as backward gives them.

::

    backward        |   calls 5, 4   |     3     |   2, 1, 0   |
    buckets                 [first]  [        ]  [        ][last]   <- in turn, once they are there
                                                                 |-- longer --|
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tnt_notebook.plan.allreduce import allreduce
from tnt_notebook.plan.buckets import BucketSizes, buckets_of
from tnt_notebook.plan.network import Link, Network
from tnt_notebook.plan.partition import Partition
from tnt_notebook.plan.profile import Profile
from tnt_notebook.plan.schedule import Schedule
from tnt_notebook.plan.simulate import Timeline
from tnt_notebook.plan.traffic import USUAL, Traffic, traffic_of, with_buckets

#: Sizes of buckets that are looked at beside the usual one, in MiB.
SIZES_MB = (1, 16, 64)
#: Another size is worth it if a step is shorter by this part of it.
_WORTH = 0.01


class Gradient(NamedTuple):
    """Of a weight, as the backward of a micro-batch gives it.

    Attributes:
        bytes: that a rank has of it.
        summed: of these, those that all ranks add up which work on the stage; the others replicas
            do.
        part: of the backward of its stage, after which it is there, 0 to 1.
    """

    bytes: int
    summed: int = 0
    part: float = 1.0


def gradients_of(profile: Profile, begin: int, end: int) -> list[Gradient]:
    """Those of a stage of calls ``begin`` to ``end`` (without it), in the order of its weights. Of
    a weight that several calls use, the first of them has the last word."""
    back = [profile.inputs[call] + profile.weights[call] for call in range(begin, end)]
    whole, gone = sum(back), 0.0
    there: dict[int, float] = {}
    for call, seconds in zip(reversed(range(begin, end)), reversed(back), strict=True):
        gone += seconds
        part = min(1.0, gone / whole) if whole else 1.0
        there |= dict.fromkeys(profile.uses[call], part)
    return [
        Gradient(profile.gradient_bytes(v), profile.summed_bytes(v), there[v])
        for v in sorted(there)
        if profile.gradient_bytes(v)
    ]


class Exchanged(NamedTuple):
    """What an exchange costs.

    Attributes:
        seconds: by which a step is longer.
        exchange: by which, as it is typed; empty: an allreduce as usual.
    """

    seconds: float
    exchange: str = ""


def exchange_s(
    timeline: Timeline,
    rank_of: Sequence[int],
    gradients: Sequence[Sequence[Gradient]],
    replicas: int,
    alike: int,
    link: Link | Network,
    traffic: Traffic = USUAL,
) -> float:
    """By how many seconds a step is longer since ranks add up gradients, from the last micro-batch
    that goes back through each stage.

    Args:
        rank_of: of each stage.
        gradients: of each stage.
        replicas: that share a batch.
        alike: ranks that work on the same stage at the same time.
        traffic: of replicas; what ranks add up that divide the work of layers goes as usual.
    """
    lasts = {span.action.stage: span for span in timeline.spans if span.action.kind in "BW"}
    ready: dict[int, list[tuple[float, Gradient]]] = defaultdict(list)
    back: dict[int, float] = {}
    for stage, rank in enumerate(rank_of):
        last = lasts[stage]
        takes = 0.0 if traffic.late else last.end - last.begin
        begin = 0.0 if traffic.late else last.begin
        back[rank] = max(last.end, back.get(rank, 0.0))
        ready[rank] += [(begin + g.part * takes, g) for g in gradients[stage]]
    caps = BucketSizes.of(traffic.bucket_mb)
    ends = timeline.seconds
    for rank, of_rank in ready.items():
        queue, given = [], 0.0
        for among in {replicas, alike} - {1}:
            link_s = allreduce(link, among, timeline.ranks * alike // among, caps.cap)
            own = among == replicas
            for there, bytes in _buckets(of_rank, caps, own, among == alike):
                takes = link_s.seconds(bytes * traffic.part if own else bytes)
                if traffic.on_owners and own:  # the other half comes in the end
                    takes /= 2
                    given += takes
                queue.append((there, takes))
        now = 0.0
        for there, takes in sorted(queue):
            now = max(now, there) + takes
        ends = max(ends, max(now, back[rank]) + given)
    return ends - timeline.seconds


def exchange_of(
    profile: Profile,
    schedule: Schedule,
    cut: Partition,
    timeline: Timeline,
    replicas: int,
    alike: int,
    link: Link | Network | None,
    exchange: str = "",
    sizes_mb: Sequence[float] = (),
) -> Exchanged:
    """What an exchange costs in a step of a model that is cut so; nothing without a link.

    Args:
        replicas, alike: as of :func:`exchange_s`.
        exchange: as it is typed; empty: an allreduce.
        sizes_mb: of buckets that there may be beside those of the exchange; one of them is taken
            where a step is clearly shorter with it.
    """
    traffic = traffic_of(exchange)
    if link is None or alike == 1:
        return Exchanged(0.0, exchange)
    gradients = [gradients_of(profile, stage.begin, stage.end) for stage in cut.stages]
    longer = functools.partial(
        exchange_s, timeline, schedule.rank_of, gradients, replicas, alike, link
    )
    usual = longer(traffic)
    others = (replace(traffic, bucket_mb=mb) for mb in sizes_mb if usual > 0)
    best, bucket_mb = min(((longer(one), one.bucket_mb) for one in others), default=(usual, 0.0))
    if usual - best <= _WORTH * (timeline.seconds + usual):
        return Exchanged(usual, exchange)
    return Exchanged(best, with_buckets(exchange, bucket_mb))


def _buckets(
    of_rank: Sequence[tuple[float, Gradient]], caps: BucketSizes, own: bool, summed: bool
) -> list[tuple[float, int]]:
    """When each bucket is there, and its bytes.

    Args:
        of_rank: its gradients, and when each is there.
        own, summed: whether both parts of a gradient are in it, or which of them.
    """
    sizes = [own * (g.bytes - g.summed) + summed * g.summed for _, g in of_rank]
    some = [number for number, bytes in enumerate(sizes) if bytes]
    buckets = buckets_of([sizes[number] for number in some], ["float32"] * len(some), caps)
    return [
        (
            max(of_rank[some[place]][0] for place in bucket),
            sum(sizes[some[place]] for place in bucket),
        )
        for bucket in buckets
    ]
