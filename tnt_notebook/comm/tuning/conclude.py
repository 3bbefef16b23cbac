"""What times say: the cost model that fits them, the best algorithm of each size, rules for it."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tnt_notebook.choices import ALIKE
from tnt_notebook.comm.rules import Rule


def relative_of(times: Mapping[str, np.ndarray]) -> list[float]:
    """How many times as long as the fastest each takes, by the median of the ratios in each round.

    Args:
        times: of each algorithm the seconds in each round.
    """
    logarithms = np.log(np.stack(list(times.values())))
    ratios = np.exp(np.median(logarithms - logarithms.mean(axis=0), axis=1))
    return (ratios / ratios.min()).tolist()


def fit_of(entries: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """The line ``t = latency + bytes / rate`` with the least squares of relative errors.

    Args:
        entries: with ``bytes`` and ``median_s``, of one algorithm.

    Returns:
        ``latency_s`` and ``bytes_per_s``, neither negative; a rate is None where none can be seen.
    """
    size = np.array([entry["bytes"] for entry in entries], float)
    seconds = np.array([entry["median_s"] for entry in entries])
    # Relative errors: both columns, and the times, are divided by the times.
    constant, slope = 1 / seconds, size / seconds
    (latency, by_byte), *_ = np.linalg.lstsq(
        np.stack([constant, slope], axis=1), np.ones_like(seconds), rcond=None
    )
    if len(entries) < 2 or by_byte <= 0:
        latency, by_byte = constant.sum() / (constant @ constant), 0.0
    elif latency < 0:
        latency, by_byte = 0.0, slope.sum() / (slope @ slope)
    rate = float(1 / by_byte) if by_byte > 0 else None
    return {"latency_s": float(latency), "bytes_per_s": rate}


def best_of(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The best algorithm by size, in as few ranges as the times allow.

    An algorithm goes on as long as it is as good as the best (ALIKE). A range ends at the
    geometric mean of two sizes that were measured.

    Args:
        entries: with ``algorithm``, ``bytes`` and ``relative``.

    Returns:
        ``[{"algorithm", "from_bytes", "up_to_bytes"}, ...]``, ascending; the last has no end: None.
    """
    by_size: dict[int, dict[str, float]] = {}
    for entry in entries:
        by_size.setdefault(entry["bytes"], {})[entry["algorithm"]] = entry["relative"]
    sizes = sorted(by_size)
    ranges: list[tuple[int, str]] = []  # where each begins
    while sizes:
        good, taken = set(by_size[sizes[0]]), 0
        for size in sizes:
            times = by_size[size]
            still = good & {n for n in times if times[n] <= ALIKE * min(times.values())}
            if not still:
                break
            good, taken = still, taken + 1
        # Of those that are as good, the one that is the best in all.
        losses = {
            name: sum(math.log(by_size[s][name] / min(by_size[s].values())) for s in sizes[:taken])
            for name in good
        }
        ranges.append((sizes[0], min(losses, key=lambda name: (losses[name], name))))
        sizes = sizes[taken:]
    measured = sorted(by_size)
    begins = [(measured[measured.index(begin) - 1], begin) for begin, _ in ranges[1:]]
    ends = [round(math.sqrt(before * begin)) for before, begin in begins]
    return [
        {"algorithm": name, "from_bytes": begin, "up_to_bytes": end}
        for (_, name), begin, end in zip(ranges, [0, *ends], [*ends, None], strict=True)
    ]


def rules_of(result: dict[str, Any]) -> list[Rule]:
    """The best algorithms of a result as rules, for as many ranks and nodes, in place or not.

    They end at twice the largest size that was measured: beyond, the rules behind them hold.
    """
    end = 2 * result["limit"][-1]["bytes"]
    measured = f"{time.strftime('%Y-%m-%d')} on {platform.node()}, {result['links']}"
    return [
        Rule(
            result["collective"],
            part["algorithm"],
            end if part["up_to_bytes"] is None else part["up_to_bytes"],
            "one" if result["nodes"] == 1 else "many",
            min_ranks=result["ranks"],
            max_ranks=result["ranks"],
            in_place=result["in_place"],
            measured=measured,
        )
        for part in result["best"]
    ]
