"""What Tab offers of what lives on a rank."""

from __future__ import annotations

from IPython import get_ipython
from IPython.core.completer import provisionalcompleter


def variables() -> list[str]:
    """Those of the cells of this rank."""
    shell = get_ipython()
    return [name for name in shell.user_ns if name[:1] != "_" and name not in shell.user_ns_hidden]


def complete(code: str, cursor: int) -> tuple[str, list[str]]:
    """What may stand at a cursor in a cell: names and their attributes.

    Args:
        cursor: characters before it.

    Returns:
        What is typed of it already, and what may stand instead.
    """
    completer = get_ipython().Completer
    completer.use_jedi = False  # it takes seconds at first, and knows less of what is there
    with provisionalcompleter():
        found = [*completer.completions(code, cursor)]
    start = max((one.start for one in found), default=cursor)
    return code[start:cursor], [one.text for one in found if one.start == start]
