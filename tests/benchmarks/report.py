"""The main program of a benchmark, and figures as text."""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks.cores import POLICY
from tests.benchmarks.rounds import machine


def reported(
    about: str | None,
    rounds: int,
    seconds: float,
    measured: Callable[[argparse.Namespace], Iterable[tuple[str, Any]]],
    **options: dict[str, Any],
) -> None:
    """The main program of a benchmark: prints what is measured, and keeps the figures in a file.

    Args:
        about: what it measures.
        rounds, seconds: how many are asked for if nobody says.
        measured: gives a text and the figures behind it, again and again.
        options: those that only this benchmark has, as arguments of `add_argument` by their names.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=rounds, help="at most, for each comparison")
    limit = "for the rounds of each comparison; TNT_THOROUGH=1 does without this limit"
    parser.add_argument("--seconds", type=float, default=seconds, help=limit)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    for name, option in options.items():
        parser.add_argument("--" + name.replace("_", "-"), **option)
    asked = parser.parse_args()
    print(f"{machine()}; {POLICY}; one compute thread a rank", flush=True)
    results = []
    for text, figures in measured(asked):
        print(f"\n{text}", flush=True)
        results.append(figures)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"machine": machine(), "results": results}))


def section(title: str, rows: Iterable[list[str]], notes: Iterable[str], more: str = "") -> str:
    """A table with what belongs to it."""
    listed = "\n".join(f"- {note}" for note in notes)
    return "\n\n".join(filter(None, [title, markdown(rows), more, listed]))


def markdown(rows: Iterable[list[str]]) -> str:
    """The first row is the head; all columns but the first are aligned to the right."""
    head, *body = rows
    rule = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))


def sized(size: int) -> str:
    """Bytes, in KB or MB."""
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def three_digits(value: float) -> str:
    """1.23, 12.3, 123, 1234."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def line(round_trips_ns: Iterable[float | None]) -> str:
    """The cache line's round trips before and after something was measured."""
    return " → ".join(f"{ns:.0f}" for ns in round_trips_ns if ns is not None)
