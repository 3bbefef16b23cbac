"""``-h`` of every magic: what it does, and its options, on less than a screen."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

from tnt_notebook.magics.actions import OF, of
from tnt_notebook.magics.parser import arguments

ASKS = ("-h", "--help")
_WIDTH = 96
_LEFT = 26  # of the column of options, at most

_ALONE = re.compile(r"%%(tnt|tnt_fit|tnt_sweep|tnt_bench(\s+\w+)?)\s+(-h|--help)\s*")

Row = tuple[str, str]


def with_a_body(lines: list[str]) -> list[str]:
    """An input transformer of IPython's: a cell magic may ask for help in a cell of one line, which
    has no body, and would be refused."""
    return [*lines, "\n"] if len(lines) == 1 and _ALONE.fullmatch(lines[0]) else lines


def help_text(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What is shown where help is asked for.

    Args:
        parser: of the magic.
        words: of its line.
    """
    name = f"%{parser.prog}"
    actions = of(parser.prog)
    if not actions:
        first, *_ = inspect.cleandoc(parser.description or "").split("\n\n")
        about = " ".join(first.split())
        return _page(name, about, _rows(parser), f"Examples: {name}?")
    action = next((word for word in words if word in actions), None)
    if action is None:
        rows = [
            (f"{one} {_shown(said.which)}".rstrip(), said.help) for one, said in actions.items()
        ]
        end = f"Options of each: {name} {next(iter(actions))} -h. Examples: {name}?"
        return _page(name, OF[parser.prog].about, rows, end)
    said = actions[action]
    options = [row for row in _rows(parser) if row[0].split()[0] in said.flags]
    title = f"{name} {action} {_shown(said.which)}".rstrip()
    return _page(title, said.help, options, f"Examples: {name}?")


def _shown(which: str) -> str:
    return f"[{which}]" if which else ""


def _rows(parser: argparse.ArgumentParser) -> list[Row]:
    """Of each argument how it is written, and what it says."""
    rows = []
    for action in arguments(parser):
        value = action.metavar or "|".join(map(str, action.choices or ()))
        if action.nargs != 0:
            value = value or (action.dest.upper() if action.option_strings else action.dest)
        said = (action.help or "").replace("%%", "%")  # as argparse reads it
        rows.append((" ".join([*action.option_strings, str(value)]).strip(), said))
    return rows


def _page(title: str, about: str, rows: Iterable[Row], end: str) -> str:
    rows = list(rows)
    width = min(_LEFT, max((len(left) for left, _ in rows), default=0))
    lines = []
    for left, right in rows:
        first, *more = textwrap.wrap(right, _WIDTH - width - 4) or [""]
        if len(left) > width:
            lines.append(f"  {left}")
            left = ""
        lines += [f"  {left.ljust(width)}  {first}", *(f"{'':{width + 4}}{line}" for line in more)]
    parts = [*textwrap.wrap(f"{title}: {about}", _WIDTH), *([""] if lines else []), *lines, "", end]
    return "\n".join(line.rstrip() for line in parts)
