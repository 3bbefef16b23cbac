"""Elements of the card in HTML, as ``widgets/dom.js`` makes them in a browser."""

from __future__ import annotations


def div(name: str, *inside: str) -> str:
    """An element of the card, by the name of its class."""
    return f'<div class="tnt-{name}">{"".join(inside)}</div>'


def span(name: str, inside: str) -> str:
    return f'<span class="tnt-{name}">{inside}</span>'


def heading(words: str, total: str = "") -> str:
    """What a part of the card shows, and its sum."""
    return div("line tnt-heading", f"<span>{words}</span>", span("total", total))


def row(name: str, middle: str, what: str, right: str) -> str:
    """Of a rank, or of all."""
    return div("rank", span("rank-name", name), middle, span(what, right))


def entry(
    words: str, colour: str, letter: str = "", ink: str | None = None, line: bool = False
) -> str:
    """Of a legend: a box with a letter, or a line."""
    style = f"background: {colour}; color: {ink or 'inherit'}"
    name = "tnt-stroke" if line else "tnt-letter"
    return f'<span><i class="{name}" style="{style}">{letter}</i>{words}</span>'
