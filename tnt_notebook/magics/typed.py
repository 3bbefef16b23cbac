"""What comes before every magic: its line is parsed, or its help shown where it asks for that, or
says nothing.

A word that nobody knows is named, with the one that was probably meant.
"""

from __future__ import annotations

import argparse
import functools
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from IPython.core.error import UsageError

from tnt_notebook.errors import Interrupted
from tnt_notebook.magics import parser as parsers
from tnt_notebook.magics.action import check
from tnt_notebook.magics.actions import of
from tnt_notebook.magics.help import ASKS, help_text
from tnt_notebook.magics.session import Session
from tnt_notebook.words import meant

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+(?=\s|$)""", re.DOTALL)


def typed(magic: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """What a shell calls for a magic of a session: gives it its line as parsed arguments."""

    @functools.wraps(magic)
    def run(line: str, *cell: str) -> Any:
        parser: argparse.ArgumentParser = magic.parser  # type: ignore[attr-defined]
        words = words_of(line)
        if {*words} & {*ASKS} or (not words and _needs_words(parser)):
            print(help_text(parser, words))
            return None
        arguments = _parsed(parser, words)
        if actions := of(parser.prog):
            check(parser, arguments, actions)
        try:
            return magic(session, arguments, *cell)
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted(f"%{parser.prog} was interrupted.") from None

    return run


def _needs_words(parser: argparse.ArgumentParser) -> bool:
    """Whether the first word says what to do."""
    return any(one.required and one.choices for one in parsers.positional(parser))


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """The arguments that words are.

    Raises:
        UsageError: they are none; it says what was probably meant.
    """
    options = parsers.options(parser)
    for before, word in pairwise(["", *words]):
        flag = word.partition("=")[0]
        takes = before in options and options[before].nargs != 0
        if takes or not re.fullmatch(r"--?[A-Za-z][\w-]*", flag):
            continue
        if not any(known.startswith(flag) or word[:2] == known for known in options):
            # Also by their names in Python: ranks is -n.
            names = {f"--{one.dest.replace('_', '-')}": name for name, one in options.items()}
            near = meant(flag, names | {name: name for name in options})
            raise UsageError(f"there is no {flag}{near or f': see %{parser.prog} -h'}")
    # Options may stand between values of which there are many, or may be none.
    several = any(action.nargs in ("+", "?") for action in parsers.positional(parser))
    try:
        return (parser.parse_intermixed_args if several else parser.parse_args)(words)
    except UsageError as error:
        wrong = re.search(r"argument (\S+): invalid choice: '([^']*)'", str(error))
        known = _choices(parser, wrong[1]) if wrong else []
        near = meant(wrong[2], dict(zip(known, known, strict=True))) if wrong else ""
        raise UsageError(f"{error}{near}") from None


def _choices(parser: argparse.ArgumentParser, argument: str) -> list[str]:
    """What an argument of this name can be."""
    for action in parsers.arguments(parser):
        if argument in ("/".join(action.option_strings), action.dest):
            return [str(choice) for choice in action.choices or ()]
    return []


def words_of(line: str) -> list[str]:
    """The words of a line as a shell has them, without their quotes, which IPython would leave.

    What is quoted is the value of the option before it, also where it begins with a dash:
    ``--extra "--qos=high"``.

    Raises:
        UsageError: a quote is not closed.
    """
    found: list[str] = []
    rest = line.strip()
    while rest:
        word = _WORD.match(rest)
        if word is None:
            raise UsageError(f"a quote is not closed: {rest}")
        (text,) = shlex.split(word[0])
        takes = found and re.fullmatch(r"--[\w-]+", found[-1])
        if takes and word[0][0] in "\"'" and text.startswith("-"):
            found[-1] += f"={text}"
        else:
            found.append(text)
        rest = rest[word.end() :].lstrip()
    return found
