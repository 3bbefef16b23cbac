"""Figures as text."""

from __future__ import annotations

from collections.abc import Iterable


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
