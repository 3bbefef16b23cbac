"""The options of ``%tnt_cluster start`` as arguments of a magic, and what was typed of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook.cluster.launch.options import OPTIONS, Option


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
    """Options of start that were typed."""
    return {
        name: _value(option, value)
        for name, option in OPTIONS.items()
        if option.typed and (value := getattr(arguments, name)) is not None
    }


def _value(option: Option, said: Any) -> Any:
    """The value of an option, of what was typed."""
    if option.kind is dict:
        if wrong := [text for text in said if "=" not in text]:
            raise UsageError(f"--env {wrong[0]}: write it as NAME=VALUE")
        return dict(text.split("=", 1) for text in said)
    if option.kind is tuple and not option.repeated:
        return said.replace(",", " ").split()
    return said
