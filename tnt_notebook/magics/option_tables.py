"""Tables of options as arguments of magics, and what was typed of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook.plan.options import Typed

Magic = Callable[..., Any]


def arguments_of(table: Typed, **instead: dict[str, Any] | None) -> Callable[[Magic], Magic]:
    """Declares all options of a table as arguments of a magic.

    Args:
        instead: by option, what is declared otherwise than there; None leaves the option out.
    """

    def declared(magic: Magic) -> Magic:
        for name, (flag, said) in reversed(table.items()):
            if (other := instead.get(name, {})) is not None:
                said = {**said, **other}
                if "type" in said:
                    said["type"] = _parser(said["type"])
                magic = argument(flag, dest=name, **said)(magic)
        return magic

    return declared


def given(table: Typed, arguments: Any) -> dict[str, Any]:
    """The options that were typed, by their names.

    Raises:
        UsageError: a number is less than 1.
    """
    options = {}
    for name, (flag, _) in table.items():
        value = getattr(arguments, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise UsageError(f"{flag} must be at least 1, not {value}")
        if value is not None and value is not False:
            options[name] = value
    return options


def _parser(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """As argparse wants a type: what its errors say is shown, but for a number's."""
    if kind in (int, float):
        return kind

    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
