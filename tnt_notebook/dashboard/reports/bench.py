"""What ``%tnt_bench`` found, for people to read and for code to go on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.choices import ALIKE
from tnt_notebook.dashboard.card.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.figures.bench_figure import by_size
from tnt_notebook.dashboard.figures.wording import plural, size

#: The rules in use are worth a word where the best algorithm is faster by more than this factor.
WORTH_A_WORD = 1.1


class Bench:
    """Times of an allreduce on the ranks of a cluster.

    Example::

        [row for row in bench.rows if row["bytes"] == 1 << 20]
        bench.best              # [{"algorithm": "direct", "from_bytes": 0, "up_to_bytes": None}]
        bench.figure.write_image("allreduce.pdf")

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
        sizes, algorithms: bytes of the vectors, ascending; and names.
        complete: False where it was interrupted.
    """

    def __init__(self, result: dict[str, Any], complete: bool = True) -> None:
        self.result, self.complete = result, complete
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
        self.sizes: list[int] = [entry["bytes"] for entry in self.limit]
        self.algorithms: list[str] = list(dict.fromkeys(row["algorithm"] for row in self.rows))

    @property
    def figure(self) -> go.Figure:
        """Time and bandwidth by size, for plotly."""
        return by_size(self.result)

    @property
    def headline(self) -> str:
        """What was measured, in a line."""
        where = ", in place," if self.in_place else ""
        return (
            f"allreduce of {self.dtype}{where} on {plural(self.ranks, 'rank')} by {self.links}: "
            f"median of {plural(self.rounds, 'round')}"
        )

    @property
    def verdict(self) -> str:
        """Which algorithm is the best for which sizes, and what the rules in use lose."""
        return f"{self._fastest()} {self._loss()}" if self.sizes else "Nothing was measured."

    def row(self, algorithm: str, count: int) -> dict[str, Any]:
        """The row of an algorithm at a size."""
        return next(r for r in self.rows if (r["algorithm"], r["bytes"]) == (algorithm, count))

    def fastest_at(self, count: int) -> dict[str, Any]:
        """The row of the fastest algorithm at a size."""
        here = [row for row in self.rows if row["bytes"] == count]
        return min(here, key=lambda row: row["relative"])

    def clearly_fastest_at(self, count: int) -> str | None:
        """The algorithm that is the fastest at a size by its median, which a table shows, and by
        the ratios within rounds; None where these differ: it is no faster than another one."""
        here = [row for row in self.rows if row["bytes"] == count]
        name = str(min(here, key=lambda row: row["median_s"])["algorithm"])
        return name if name == self.fastest_at(count)["algorithm"] else None

    def __repr__(self) -> str:
        return f"<{self.headline}; {len(self.sizes)} sizes, {len(self.algorithms)} algorithms>"

    def _fastest(self) -> str:
        parts = [
            f"{part['algorithm']} up to {size(part['up_to_bytes'])}"
            for part in self.best
            if part["up_to_bytes"] is not None
        ]
        last = self.best[-1]["algorithm"]
        end = f"{last} beyond" if parts else f"{last} for all sizes"
        return f"Within {ALIKE - 1:.0%} of the fastest: {', '.join([*parts, end])}."

    def _loss(self) -> str:
        """Where another algorithm than the one that the rules take would gain most."""
        measured = set(self.algorithms)
        taken = [use for use in self.in_use if use["algorithm"] in measured]
        if not taken:
            return "What the rules in use take was not measured."
        factors = {use["bytes"]: self._times_as_long(use) for use in taken}
        worst = max(factors, key=lambda count: factors[count])
        if factors[worst] <= WORTH_A_WORD:
            return f"The rules in use are within {WORTH_A_WORD - 1:.0%} of that."
        name = next(use["algorithm"] for use in taken if use["bytes"] == worst)
        return (
            f"The rules in use lose most at {size(worst)}, where {name} takes "
            f"{factors[worst]:.1f} times as long as {self.fastest_at(worst)['algorithm']}."
        )

    def _times_as_long(self, use: Mapping[str, Any]) -> float:
        """As the fastest at a size, what the rules take there: by the ratios within rounds, and not
        more than the medians in the table show."""
        row, best = self.row(use["algorithm"], use["bytes"]), self.fastest_at(use["bytes"])
        return min(row["relative"], max(1.0, row["median_s"] / best["median_s"]))


def placeholder() -> Bundle:
    """Where the figure will be: nothing to see in a browser, one line elsewhere."""
    return {"text/html": "", "text/plain": "The figure comes at the end."}


def figure_bundle(bench: Bench) -> Bundle:
    """The figure as it stays in a notebook."""
    return {
        PLOTLY: bench.figure.to_plotly_json(),
        "text/plain": "Figure: time and bandwidth of an allreduce by size.",
    }
