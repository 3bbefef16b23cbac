"""What comes before and after every magic: its line is parsed, and its errors are sentences.

Ranks and names stand in a line as ``0,2-3`` and ``ring,direct``.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from tnt_notebook.errors import TntError
from tnt_notebook.magics.session import Session

#: Beyond any cluster's: what is written down as a range is a list here.
MOST_RANKS = 1 << 16


def typed(magic: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """What a shell calls for a magic of a session: gives it its line as parsed arguments, and shows
    its errors as one sentence, without our own frames; a rank's error shows the rank's traceback.
    """

    @functools.wraps(magic)
    def run(line: str, *cell: str) -> Any:
        try:
            return magic(session, magic.parser.parse_argstring(line), *cell)  # type: ignore[attr-defined]
        except TntError as error:
            if not hasattr(error, "_render_traceback_"):
                sentence = f"{type(error).__name__}: {error}"
                # IPython's protocol, looked up on the error itself.
                error._render_traceback_ = sentence.splitlines  # type: ignore[attr-defined]
            raise

    return run


def name_list(text: str) -> list[str]:
    """Parses ``ring,direct`` into ``["ring", "direct"]``; for use as an argparse type."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: write names like ring,direct")
    return list(dict.fromkeys(names))


def rank_list(text: str) -> list[int]:
    """Parses ``0,2-3`` into ``[0, 2, 3]``; for use as an argparse type."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r}: write ranks like 0,2-3")
        if dash and int(last) < int(first):
            raise argparse.ArgumentTypeError(f"{part.strip()!r} counts down: write ranks like 2-3")
        if int(last or first) >= MOST_RANKS:
            raise argparse.ArgumentTypeError(f"{part.strip()!r}: no cluster has so many ranks")
        ranks.update(range(int(first), int(last or first) + 1))
    return sorted(ranks)
