"""What ``%tnt_bench`` shows as text: times by size, the fits, and the rules."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tnt_notebook.dashboard.wording import short_time, size, three_digits
from tnt_notebook.magics.table import aligned, html

if TYPE_CHECKING:
    from tnt_notebook.dashboard.bench import Bench

_FASTEST = "*"
_BY = "the fastest, by the ratios within rounds"


def bench_text(bench: Bench) -> str:
    """Headline, tables and verdict, for a monospaced font."""
    head, rows = _times(bench)
    cells = [[text + (_FASTEST if best else " " * (head[i] in bench.algorithms))
              for i, (text, best) in enumerate(row)] for row in rows]  # fmt: skip
    times = aligned(head, cells, set(head) - {_RULES})
    fit_head, fits = _fits(bench)
    return "\n\n".join(
        [
            f"{bench.headline}, in µs ({_FASTEST} {_BY})",
            times,
            aligned(fit_head, fits, set(fit_head[1:])),
            bench.verdict,
        ]
    )


def bench_html(bench: Bench) -> str:
    """The same for a browser, which gives tables its own style."""
    head, rows = _times(bench)
    fit_head, fits = _fits(bench)
    fitted = [[(text, False) for text in row] for row in fits]
    return (
        f"<p>{escape(bench.headline)}, in µs (<b>bold</b>: {_BY})</p>"
        f"{html(head, rows)}"
        f"<p><b>{escape(bench.verdict)}</b></p>"
        f"<details><summary>the cost model</summary>{html(fit_head, fitted)}</details>"
    )


def rules_text(known: dict[str, Any]) -> str:
    """The rules in use, in order, and where they come from.

    Args:
        known: what the ranks say: ``file``, ``saved`` and ``default`` rules.
    """
    rows = [
        (
            rule["collective"],
            rule["algorithm"],
            "any" if rule["up_to_bytes"] is None else size(rule["up_to_bytes"]),
            _span(rule["min_ranks"], rule["max_ranks"]),
            rule["nodes"],
            {None: "either", True: "yes", False: "no"}[rule["in_place"]],
            rule["measured"] or origin,
        )
        for origin in ("saved", "default")
        for rule in known[origin]
    ]
    head = ("collective", "algorithm", "up to", "ranks", "nodes", "in place", "from")
    file = known["file"] or "none: TNT_RULES is empty"
    first = f"The first rule that matches counts. File of saved rules: {file}"
    return f"{first}\n\n{aligned(head, rows, {'up to'})}"


_RULES = "rules take"


def _times(bench: Bench) -> tuple[list[str], list[list[tuple[str, bool]]]]:
    """Head and rows; of each cell its text, and whether it is the fastest of its row."""
    head = ["size", *bench.algorithms, "limit", "best GB/s", _RULES]
    rows = []
    for limit, use in zip(bench.limit, bench.in_use, strict=True):
        count = limit["bytes"]
        best = bench.fastest_at(count)
        medians = [bench.row(name, count) for name in bench.algorithms]
        rows.append(
            [
                (size(count), False),
                *((_us(row["median_s"]), row is best) for row in medians),
                (_us(limit["median_s"]), False),
                (three_digits(best["bus_bytes_per_s"] / 1e9), False),
                (use["algorithm"], False),
            ]
        )
    return head, rows


def _fits(bench: Bench) -> tuple[list[str], list[list[str]]]:
    head = ["t = latency + bytes / rate", "latency", "rate"]
    rows = []
    for fit in bench.fits:
        rate = (
            "-" if fit["bytes_per_s"] is None else f"{three_digits(fit['bytes_per_s'] / 1e9)} GB/s"
        )
        rows.append([fit["algorithm"], short_time(fit["latency_s"]), rate])
    return head, rows


def _us(seconds: float) -> str:
    return three_digits(1e6 * seconds)


def _span(least: int, most: int | None) -> str:
    if most is None:
        return "any" if least == 1 else f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"
