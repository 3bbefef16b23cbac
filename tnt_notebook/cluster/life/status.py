"""What ``%tnt_cluster status`` shows of every rank, gathered without asking the ranks."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass(frozen=True)
class RankStatus:
    """One row of the table.

    ``cores`` are the numbers of those that the rank is pinned to, ``gpu`` is what it has as
    CUDA_VISIBLE_DEVICES, and ``gpus`` how many its host has, None where nobody knows. ``memory`` is
    resident bytes, of ranks on this host; ``state`` is idle, busy or dead. ``node`` numbers nodes:
    ranks of one share memory. ``link`` is what the rank reaches others by: shm, mpi, shm+mpi, or
    nothing.
    """

    rank: int
    host: str
    pid: int
    cores: tuple[int, ...]
    gpu: str | None
    memory: int | None
    state: str
    node: int = 0
    link: str = ""
    gpus: int | None = None


@dataclass(frozen=True)
class Links:
    """How ranks reach each other: ``by`` what, for which ``reason``, with how many ``lanes``."""

    by: str
    reason: str
    lanes: int


def rank_statuses(
    seats: Iterable[Mapping[str, Any]], busy: Collection[int], dead: Collection[int]
) -> list[RankStatus]:
    """Rows for ranks.

    Args:
        seats: what each rank said of itself at the start.
        busy: ranks that run or await a cell.
        dead: ranks that are known to have left.
    """
    rows = []
    for seat in seats:
        here = seat["host"] == platform.node()
        memory = _resident(seat["pid"]) if here else None
        gone = seat["rank"] in dead or (here and memory is None)
        state = "dead" if gone else "busy" if seat["rank"] in busy else "idle"
        rows.append(
            RankStatus(
                seat["rank"], seat["host"], seat["pid"], tuple(seat["cores"]), seat["gpu"],
                None if gone else memory, state, seat["node"], seat["link"], seat.get("gpus"),
            )
        )  # fmt: skip
    return rows


def _resident(pid: int) -> int | None:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return None
