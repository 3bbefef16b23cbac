"""The options of ``%tnt_cluster start`` as arguments of a magic, and what was typed of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook.cluster.options import OPTIONS, Option
from tnt_notebook.magics.cluster_actions import ACTIONS

_SWITCHES = ("dry_run", "missing", "force")


def start_arguments(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Declares the options of start as arguments of a magic."""
    for option in reversed(OPTIONS.values()):
        if option.typed:
            magic = argument(
                option.flag, dest=option.name, action="append" if option.repeated else "store",
                type=option.kind if option.kind in (int, float) else str,
                choices=option.choices or None, metavar=option.metavar, help=option.help,
            )(magic)  # fmt: skip
    return magic


def given(arguments: Any) -> dict[str, Any]:
    """Options of start that were typed.

    Raises:
        UsageError: one that goes with another action.
    """
    action = arguments.action
    options = {
        name: _value(option, value)
        for name, option in OPTIONS.items()
        if option.typed and (value := getattr(arguments, name)) is not None
    }
    said = [OPTIONS[name].flag for name in options]
    said += [f"--{name.replace('_', '-')}" for name in _SWITCHES if getattr(arguments, name)]
    for flag in said:
        if flag not in ACTIONS[action].flags:
            goes_with = [name for name, one in ACTIONS.items() if flag in one.flags]
            raise UsageError(f"{flag} goes with {' and '.join(goes_with)} only")
    if arguments.which is not None and not ACTIONS[action].which:
        raise UsageError(f"{action} takes no more: {arguments.which} is too much")
    return options


def _value(option: Option, said: Any) -> Any:
    """The value of an option, of what was typed."""
    if option.kind is dict:
        if wrong := [text for text in said if "=" not in text]:
            raise UsageError(f"--env {wrong[0]}: write it as NAME=VALUE")
        return dict(text.split("=", 1) for text in said)
    if option.kind is tuple and not option.repeated:
        return said.replace(",", " ").split()
    return said
