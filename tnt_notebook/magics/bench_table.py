"""What ``%tnt_bench`` shows beside the figure: times by size, the fits, and the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tnt_notebook.dashboard.wording import short_time, size, three_digits
from tnt_notebook.magics.table import Bold, Table, bundle

if TYPE_CHECKING:
    from tnt_notebook.dashboard.bench import Bench


def bench_bundle(bench: Bench) -> dict[str, str]:
    """Headline, tables and verdict."""
    head = ("size", *bench.algorithms, "limit", "best GB/s", "rules take")
    rows, best = [], set()
    for limit, use in zip(bench.limit, bench.in_use, strict=True):
        count = limit["bytes"]
        fastest = bench.fastest_at(count)
        best.add((len(rows), fastest["algorithm"]))
        times = [bench.row(name, count) for name in bench.algorithms]
        medians = [three_digits(1e6 * entry["median_s"]) for entry in (*times, limit)]
        gigabytes = three_digits(fastest["bus_bytes_per_s"] / 1e9)
        rows.append([size(count), *medians, gigabytes, use["algorithm"]])
    model = "t = latency + bytes / rate"
    fits = [
        (fit["algorithm"], short_time(fit["latency_s"]), _rate(fit["bytes_per_s"]))
        for fit in bench.fits
    ]
    return bundle(
        f"{bench.headline}, in µs (* the fastest, by the ratios within rounds)",
        Table(head, rows, left={"rules take"}, best=best),
        Table((model, "latency", "rate"), fits, left={model}, folded="the cost model"),
        Bold(bench.verdict),
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
    return f"{first}\n\n{Table(head, rows, {*head} - {'up to'}).text()}"


def _rate(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else f"{three_digits(bytes_per_s / 1e9)} GB/s"


def _span(least: int, most: int | None) -> str:
    if most is None:
        return "any" if least == 1 else f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"
