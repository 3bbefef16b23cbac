"""What to expect of more ranks, from a run on few, what a plan says of the model, and what an
exchange takes.

::

    few ranks   | input | work                | other |          as measured
    more ranks  | input | work, less samples  | exchange | other |
                            by the plan          what backward does not hide

Work changes as the plan says for other numbers of samples, input with the samples that a rank maps,
the rest stays. An exchange goes on while backward does: what is longer than that delays the step,
and the last bucket always does. Ranks that share cores take longer as there are more of them for a
core. That they take memory bandwidth or caches from each other is not in it: where measured points
lie below the line, look there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from tnt_notebook.plan.network import Link

#: Of forward and backward the part of backward, behind which an exchange can hide.
BACKWARD = 2 / 3
#: Bytes of gradients that are exchanged at a time, and of the last ones: see
#: ``parallel/exchange/buckets.py``.
BUCKET, LAST = 4 << 20, 1 << 18


def exchange_s(bytes: int, allreduce: Link) -> tuple[float, float]:
    """Seconds of an exchange of gradients, bucket by bucket; and of its last bucket, behind which
    nothing is left to compute."""
    buckets = max(1, math.ceil(bytes / BUCKET))
    return allreduce.seconds(bytes, buckets), allreduce.seconds(min(bytes, LAST))


def expected_step_s(
    step_s: float,
    parts: Mapping[str, float],
    work: float,
    input: float,
    bytes: int,
    network: Link | None,
    oversubscription: float = 1.0,
) -> float:
    """Seconds of a step on more ranks.

    Args:
        step_s: of a step on few ranks.
        parts: what it consists of, in seconds, as in :class:`~tnt_notebook.telemetry.Breakdown`;
            empty: all of it is work.
        work, input: how many times as much of it there is on a rank.
        bytes: of gradients.
        network: an allreduce among the ranks; None: nothing is exchanged.
        oversubscription: how many times as many ranks have a core.
    """
    whole = sum(parts.values())
    # The step that was looked at may be another one than that of median length.
    seconds = {p: s * step_s / whole for p, s in parts.items()} if whole else {"work": step_s}
    computing = oversubscription * work * (seconds.pop("work", 0.0) + seconds.pop("wait", 0.0))
    coming = input * seconds.pop("input", 0.0)
    for waiting in ("skew", "exchange"):
        seconds.pop(waiting, None)
    exposed = 0.0
    if network is not None and bytes:
        all_of_it, last = exchange_s(bytes, network)
        exposed = max(last, all_of_it - BACKWARD * computing)
    return computing + coming + exposed + oversubscription * sum(seconds.values())


def ranks_of_a_core(hosts: Sequence[str], cores: Sequence[Collection[int]]) -> float:
    """How many ranks share a core, on the host where most do; at least 1.

    Args:
        hosts, cores: of each rank, where it runs, and on which cores.
    """
    most = 1.0
    for host in set(hosts):
        own = [set(of) for at, of in zip(hosts, cores, strict=True) if at == host]
        most = max(most, sum(map(len, own)) / len(set().union(*own)))
    return most
