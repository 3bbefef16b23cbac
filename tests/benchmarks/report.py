"""Figures as text and in files, and how many of them are asked for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks.rounds import machine


def parser(about: str | None, rounds: int, seconds: float) -> argparse.ArgumentParser:
    """The options that all benchmarks have, with their defaults."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--rounds", type=int, default=rounds, help="at most, for each comparison")
    made.add_argument(
        "--seconds", type=float, default=seconds,
        help="for the rounds of each comparison; TNT_THOROUGH=1 does without this limit",
    )  # fmt: skip
    made.add_argument("--json", type=Path, help="a file for all figures")
    return made


def keep(file: Path | None, **figures: Any) -> None:
    """Writes figures to the file that was asked for, if any, beside those of the machine."""
    if file is not None:
        file.write_text(json.dumps({"machine": machine(), **figures}))


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
