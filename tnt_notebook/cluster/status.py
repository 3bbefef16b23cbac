"""What ``%tnt_cluster status`` shows of every rank, gathered without asking the ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass(frozen=True)
class RankStatus:
    """One row of the table; ``memory`` is resident bytes, ``state`` is idle, busy or dead."""

    rank: int
    host: str
    pid: int
    cores: tuple[int, ...]
    gpu: str | None
    memory: int | None
    state: str


def rank_statuses(
    descriptions: Iterable[Mapping[str, Any]], busy: Collection[int], dead: Collection[int]
) -> list[RankStatus]:
    """Rows for ranks, from what each said of itself at the start.

    Args:
        descriptions: answers of ``tnt_notebook.engine.cell.describe``.
        busy: ranks that run or await a cell.
        dead: ranks that are known to have left.
    """
    rows = []
    for seat in sorted(descriptions, key=lambda seat: seat["rank"]):
        memory = _resident(seat["pid"])
        gone = seat["rank"] in dead or memory is None
        state = "dead" if gone else "busy" if seat["rank"] in busy else "idle"
        rows.append(
            RankStatus(
                rank=seat["rank"],
                host=seat["host"],
                pid=seat["pid"],
                cores=tuple(seat["cores"]),
                gpu=seat["gpu"],
                memory=None if gone else memory,
                state=state,
            )
        )
    return rows


def _resident(pid: int) -> int | None:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return None
