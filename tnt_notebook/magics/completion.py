"""Tab completion of subcommands, flags and variable names, from the magics' own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.magic import Magics

_HOOK = "complete_command"


def install(shell: InteractiveShell, magics: Magics) -> None:
    """Adds completion for all magics of a set."""
    for key, parser, names in _commands(shell, magics):
        shell.set_hook(_HOOK, _completer(parser, names), str_key=key)


def remove(shell: InteractiveShell, magics: Magics) -> None:
    """Takes the completion away again."""
    for key, _, _ in _commands(shell, magics):
        shell.strdispatchers[_HOOK].strs.pop(key, None)


def _commands(
    shell: InteractiveShell, magics: Magics
) -> list[tuple[str, argparse.ArgumentParser, Callable[[], list[str]]]]:
    def variables() -> list[str]:
        hidden = shell.user_ns_hidden
        return [name for name in shell.user_ns if name[:1] != "_" and name not in hidden]

    return [
        (prefix + name, magic.parser, variables if name == "tnt_push" else list)
        for kind, prefix in (("line", "%"), ("cell", "%%"))
        for name, magic in magics.magics[kind].items()
    ]


def _completer(
    parser: argparse.ArgumentParser, names: Callable[[], list[str]]
) -> Callable[[Any, Any], list[str]]:
    def complete(shell: Any, event: Any) -> list[str]:
        words = event.text_until_cursor.split()[1:]
        if words and not event.text_until_cursor[-1:].isspace():
            words.pop()  # the one that is being typed
        return _candidates(parser, words, event.symbol) or names()

    return complete


def _candidates(parser: argparse.ArgumentParser, before: list[str], typed: str) -> list[str]:
    """What may follow the words before the cursor."""
    options = parser._option_string_actions
    if before and before[-1] in options and options[before[-1]].nargs != 0:
        return [str(choice) for choice in options[before[-1]].choices or ()]
    flags = sorted(flag for flag in options if flag not in before)
    if typed.startswith("-"):
        return flags
    choices = [
        str(choice)
        for action in parser._get_positional_actions()
        for choice in action.choices or ()
    ]
    if choices and not set(choices) & set(before):
        return choices
    return flags if choices or not parser._get_positional_actions() else []
