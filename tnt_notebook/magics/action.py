"""What a magic can do, where its first word says what: for checks, help and completion."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass

from IPython.core.error import UsageError

from tnt_notebook.magics import parser as parsers


@dataclass(frozen=True)
class Action:
    """Something that a magic does.

    Attributes:
        help: what it does, in a line.
        which: what its second word stands for; "" where it takes none.
        flags: of options that say something to it.
    """

    help: str
    which: str = ""
    flags: tuple[str, ...] = ()


def check(parser: ArgumentParser, arguments: Namespace, actions: Mapping[str, Action]) -> None:
    """Refuses what says nothing to the action.

    Args:
        arguments: parsed; ``action`` is one of `actions`, and ``which`` the second word, if any.

    Raises:
        UsageError: an option that goes with other actions, or a second word where none belongs.
    """
    own = actions[arguments.action]
    for option in parsers.arguments(parser):
        if getattr(arguments, option.dest) == option.default or not option.option_strings:
            continue
        if {*option.option_strings} & {*own.flags}:
            continue
        flag = option.option_strings[0]
        goes_with = [name for name, one in actions.items() if flag in one.flags]
        raise UsageError(f"{flag} goes with {' and '.join(goes_with)} only")
    which = getattr(arguments, "which", None)
    if which is not None and not own.which:
        raise UsageError(f"{arguments.action} takes no more: {which} is too much")
