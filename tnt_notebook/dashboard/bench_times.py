"""What ``%tnt_bench`` measured: times of an allreduce by algorithm and size."""

from __future__ import annotations

from typing import Any


class BenchTimes:
    """Times of an allreduce on the ranks of a cluster.

    Attributes:
        rows: a dict for each algorithm and size: ``algorithm``, ``bytes``, ``median_s``, ``low_s``
            and ``high_s`` (quartiles of the rounds), ``bus_bytes_per_s``
            (``2 (p - 1) / p * bytes / t``), ``relative`` (how many times as long as the fastest at
            that size, by the ratios in each round: on a machine whose speed changes they say more).
        limit: the times without ``algorithm``: moving the bytes alone, with nothing added up.
        fits: for each algorithm ``latency_s`` and ``bytes_per_s``: t = latency + bytes / rate.
        best: the fastest by size: ``algorithm``, ``from_bytes``, ``up_to_bytes`` (None: no end).
        in_use: what the rules that the ranks used would take: ``bytes``, ``algorithm``.
        ranks, nodes, links, dtype, in_place, rounds: what was measured.
        complete: False where it was interrupted.
    """

    def __init__(self, result: dict[str, Any], complete: bool = True) -> None:
        """
        Args:
            result: what the ranks gave.
            complete: whether it is all that was asked for.
        """
        self.result = result
        self.complete = complete
        self.rows: list[dict[str, Any]] = result["entries"]
        self.limit: list[dict[str, Any]] = result["limit"]
        self.fits: list[dict[str, Any]] = result["fits"]
        self.best: list[dict[str, Any]] = result["best"]
        self.in_use: list[dict[str, Any]] = result["rules"]
        self.ranks: int = result["ranks"]
        self.nodes: int = result["nodes"]
        self.links: str = result["links"]
        self.dtype: str = result["dtype"]
        self.in_place: bool = result["in_place"]
        self.rounds: int = result["rounds"]

    @property
    def sizes(self) -> list[int]:
        """Bytes of the vectors, ascending."""
        return [entry["bytes"] for entry in self.limit]

    @property
    def algorithms(self) -> list[str]:
        """Those that were measured."""
        return list(dict.fromkeys(row["algorithm"] for row in self.rows))
