"""What ``%tnt_bench`` found, for people to read and for code to go on with."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.bench_figure import by_size
from tnt_notebook.dashboard.bench_times import BenchTimes
from tnt_notebook.dashboard.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.wording import plural, size

#: The rules in use are worth a word where the best algorithm is faster by more than this factor.
WORTH_A_WORD = 1.1


class Bench(BenchTimes):
    """Times of an allreduce on the ranks of a cluster.

    Example::

        [row for row in bench.rows if row["bytes"] == 1 << 20]
        bench.best              # [{"algorithm": "direct", "from_bytes": 0, "up_to_bytes": None}]
        bench.figure.write_image("allreduce.pdf")

    Its other attributes are those of :class:`~tnt_notebook.dashboard.bench_times.BenchTimes`.
    """

    @property
    def figure(self) -> go.Figure:
        """Time and bandwidth by size, for plotly."""
        return by_size(self)

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
        return f"Fastest: {', '.join([*parts, end])}."

    def _loss(self) -> str:
        """Where another algorithm than the one that the rules take would gain most."""
        measured = set(self.algorithms)
        taken = [use for use in self.in_use if use["algorithm"] in measured]
        if not taken:
            return "What the rules in use take was not measured."
        factors = {}
        for use in taken:
            factors[use["bytes"]] = self.row(use["algorithm"], use["bytes"])["relative"]
        worst = max(factors, key=lambda count: factors[count])
        if factors[worst] <= WORTH_A_WORD:
            return f"The rules in use are within {WORTH_A_WORD - 1:.0%} of that."
        name = next(use["algorithm"] for use in taken if use["bytes"] == worst)
        return (
            f"The rules in use lose most at {size(worst)}, where {name} takes "
            f"{factors[worst]:.1f} times as long as {self.fastest_at(worst)['algorithm']}."
        )


def placeholder() -> Bundle:
    """Where the figure will be: nothing to see in a browser, one line elsewhere."""
    return {"text/html": "", "text/plain": "The figure comes at the end."}


def figure_bundle(bench: Bench) -> Bundle:
    """The figure as it stays in a notebook."""
    return {
        PLOTLY: bench.figure.to_plotly_json(),
        "text/plain": "Figure: time and bandwidth of an allreduce by size.",
    }
