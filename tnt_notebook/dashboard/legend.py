"""Titles of plots that are legends too: they name curves and boxes in their colours."""

from __future__ import annotations

import re
from collections.abc import Iterable


def word(text: str, colour: str, mark: str = "━") -> str:
    """The name of a curve, in its colour."""
    return f'<span style="color:{colour}">{mark} {text}</span>'


def swatch(text: str, colour: str) -> str:
    """What a box stands for, beside its colour, which may be too faint for letters."""
    return f'<span style="color:{colour}">■</span> {text}'


def lines_of(words: Iterable[str], width: int) -> str:
    """The words in lines of not more characters than this."""
    lines: list[list[str]] = [[]]
    room = width
    for one in words:
        length = len(re.sub(r"<[^>]*>", "", one)) + 1
        if lines[-1] and length > room:
            lines.append([])
            room = width
        lines[-1].append(one)
        room -= length
    return "<br>".join("   ".join(line) for line in lines)
