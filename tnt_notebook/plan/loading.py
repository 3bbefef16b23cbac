"""What a loader's measurement means: what limits it, and how many ranks it feeds.

Plain numbers in and out, so that the ranks can measure and the notebook can say.
"""

from __future__ import annotations

import math
from typing import Any

#: Formats of generated files, in the order in which they are measured and shown.
FORMATS = ("raw", "png", "jpeg", "tfrecord", "parquet")
#: In memory, without a file: what all else is beside.
SYNTHETIC = "synthetic"
LOCAL, THROTTLED = "local", "throttled"
STORAGES = (LOCAL, THROTTLED)

#: What limits a loader.
CPU, BANDWIDTH, LATENCY, PYTHON, CALLS = "cpu", "bandwidth", "latency", "python", "calls"
STORAGE = "storage"  # of which neither is known

#: Parts of what there is above which it is what limits.
_BUSY, _FULL, _WAITING = 0.8, 0.8, 0.5


def limit_of(busy: float, full: float, waiting: float, in_python: bool = False) -> str:
    """What limits a loader that nobody holds up.

    Args:
        busy: which part of its cores it uses or waits for, 0 to 1.
        full: which part of the bandwidth of its storage; 0 where that is not known.
        waiting: which part of the time of what reads it waits for the storage.
        in_python: whether it reads in Python.
    """
    if full >= _FULL:
        return BANDWIDTH
    if waiting >= _WAITING:  # where cores were short, calls would wait for them for longer
        return LATENCY
    if busy >= _BUSY:
        return CPU
    return PYTHON if in_python else CALLS


def fed(samples_per_s: float, need: float | None, ranks: int) -> int | None:
    """How many of the ranks get all that they consume.

    Args:
        samples_per_s: that all ranks get together, when all read.
        need: what all consume together; None: not known.
    """
    if not need:
        return None
    return min(ranks, math.floor(ranks * samples_per_s / need))


def row_of(
    case: dict[str, Any],
    of_ranks: list[dict[str, float]],
    cores: int,
    bytes_per_s: float,
    readers: int,
) -> dict[str, Any]:
    """A row of the result, of what each rank measured in the same seconds.

    Args:
        case: what was read, and how: ``format``, ``storage``, ``calls``, ``prefetch``.
        of_ranks: ``samples``, ``seconds``, ``bytes``, ``cpu_s`` (used), ``queued_s`` (wanted, while
            others had the cores), ``waited_s`` (for the storage, all calls together).
        cores: of all ranks together.
        bytes_per_s: of the storage, for all ranks; infinite: not known.
        readers: calls of a rank that read at the same time.
    """
    rates = [one["samples"] / one["seconds"] for one in of_ranks]
    read = sum(one["bytes"] / one["seconds"] for one in of_ranks)
    wanted = sum((one["cpu_s"] + one["queued_s"]) / one["seconds"] for one in of_ranks)
    waited = sum(one["waited_s"] / one["seconds"] for one in of_ranks)
    busy = min(1.0, wanted / cores)
    waiting = min(1.0, waited / (len(of_ranks) * readers))
    in_python = case["format"] == "parquet"
    return {
        **case,
        "samples_per_s": sum(rates),
        "bytes_per_s": read,
        "rank_samples_per_s": rates,
        "busy": busy,
        "waiting": waiting,
        "limit": limit_of(busy, read / bytes_per_s, waiting, in_python),
    }


def own_row(
    name: str,
    kind: str,
    reading: str,
    of_ranks: list[dict[str, float]],
    parts: list[dict[str, Any]],
    cores: int,
    calls: int | None,
    replicas: int,
) -> dict[str, Any]:
    """The result of a dataset of a person's own.

    Args:
        kind: ``tf.data`` or ``PyDataset``.
        reading: why every rank does the work of all; empty: each does its own.
        of_ranks: as of `row_of`, without what only the storage knows.
        parts: ``part`` (read, map or batch), and ``until_s``: seconds for a sample up to its end.
        cores: of all ranks together.
        calls: the fewest parallel calls of its maps, 0: as many as seem good; None: it has none.
        replicas: that share each batch.

    Returns:
        ``dataset``, ``kind``, ``reading``, ``samples_per_s`` of all together,
        ``rank_samples_per_s``, ``busy``, ``first_s``, ``calls``, ``parts`` (``part``, ``seconds``
        for a sample, ``share``) and ``limit``.
    """
    rates = [one["samples"] / one["seconds"] for one in of_ranks]
    wanted = sum((one["cpu_s"] + one["queued_s"]) / one["seconds"] for one in of_ranks)
    before, of_parts = 0.0, []
    for part in parts:
        of_parts.append({"part": part["part"], "seconds": max(0.0, part["until_s"] - before)})
        before = max(before, part["until_s"])
    whole = sum(part["seconds"] for part in of_parts)
    shared = [{**part, "share": part["seconds"] / whole} for part in of_parts] if whole else []
    busy = min(1.0, wanted / cores)
    most = max(shared, key=lambda part: part["share"])["part"] if shared else ""
    return {
        "dataset": name, "kind": kind, "reading": reading,
        "samples_per_s": sum(rates) * replicas / len(rates), "rank_samples_per_s": rates,
        "busy": busy, "first_s": max(one["first_s"] for one in of_ranks), "calls": calls,
        "parts": shared, "limit": _limit_of_own(busy, kind, reading, most),
    }  # fmt: skip


def _limit_of_own(busy: float, kind: str, reading: str, most: str) -> str:
    if busy >= _BUSY:
        return CPU
    if kind == "PyDataset" or "from_generator" in reading:
        return PYTHON
    return STORAGE if most == "read" else CALLS
