"""Settings of a sweep as they are typed: ``rate=log(1e-4,1e-1) width=64|128 dropout=0..0.5``.

=========================  ==================================================================
``a|b|c``                  one of these: numbers, words, True, False, None
``low..high``              any number between; whole ones, where both ends are whole
``low..high:step``         in steps
``log(low,high)``          any number between, each decade as likely as another
=========================  ==================================================================
"""

from __future__ import annotations

import ast
import builtins
import keyword
import math
import re
import symtable
from argparse import ArgumentTypeError
from collections.abc import Iterable

from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import TransformerManager

from tnt_notebook.sweep.space import Choice, Range, Setting

_HOW = "write a|b|c, low..high, low..high:step or log(low,high)"
_LOG = re.compile(r"log\(([^,()]+),([^,()]+)\)")
_RANGE = re.compile(r"(.+?)\.\.([^:]+)(?::(.+))?")


def setting(text: str) -> tuple[str, Setting]:
    """Parses ``width=64|128``; for use as an argparse type."""
    name, is_there, values = text.partition("=")
    if not is_there:
        raise ArgumentTypeError(f"{text!r} is not a setting: write NAME=VALUES, as width=64|128")
    _check_name(name)
    try:
        return name, _values(values)
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: {error}") from None


def space_of(settings: Iterable[tuple[str, Setting]]) -> dict[str, Setting]:
    """Settings by name.

    Raises:
        UsageError: a name is there twice.
    """
    space: dict[str, Setting] = {}
    for name, values in settings:
        if name in space:
            raise UsageError(f"{name} is given twice: write its values once")
        space[name] = values
    return space


def check_used(space: Iterable[str], cell: str) -> None:
    """Refuses settings that make no difference to a cell.

    Args:
        cell: that Python can read.

    Raises:
        UsageError: the cell does not use a setting, or sets it itself.
    """
    try:
        code = TransformerManager().transform_cell(cell)
        used, bound = _names(symtable.symtable(code, "<cell>", "exec"))
    except (SyntaxError, ValueError, RecursionError):
        return  # await at the top level, for instance; the ranks say what is wrong
    for name in space:
        if name in bound:
            raise UsageError(f"the cell sets {name} itself, which would hide the setting: take "
                             "that line out of the cell")  # fmt: skip
        if name not in used:
            raise UsageError(f"the cell does not use {name}: all its values would give the same")


def _names(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """Global names that code reads, and those that it binds at its top level or by `global`."""
    used, bound = set(), set()
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (top or symbol.is_global()):
            used.add(symbol.get_name())
        binds = symbol.is_assigned() or symbol.is_imported()
        if binds and (top or symbol.is_declared_global()):
            bound.add(symbol.get_name())
    for inner in table.get_children():
        more = _names(inner)
        used |= more[0]
        bound |= more[1]
    return used, bound


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ArgumentTypeError(f"{name!r} is not a valid variable name")
    if name in dir(builtins) or name.startswith("_"):
        raise ArgumentTypeError(f"{name!r} is reserved by Python: choose another name")


def _values(text: str) -> Setting:
    if found := _LOG.fullmatch(text):
        low, high = _number(found[1]), _number(found[2])
        if low <= 0:
            raise ValueError(f"a logarithm needs numbers above 0, not {found[1]}")
        return Range(*_ends(low, high), log=True)
    if text.startswith("log"):
        raise ValueError("write log(low,high), without spaces")
    if "|" not in text and (found := _RANGE.fullmatch(text)):
        low, high = _ends(_number(found[1]), _number(found[2]))
        if found[3] is None:
            return Range(low, high)
        step = _number(found[3])
        if not 0 < step <= high - low:
            raise ValueError(f"a step is above 0, and within the range, not {found[3]}")
        whole = all(isinstance(n, int) for n in (low, high, step))
        return Range(low, high, step=step) if whole else Range(float(low), float(high), step=step)
    options = tuple(map(_option, text.split("|")))
    if len(options) != len({(type(o), o) for o in options}):
        raise ValueError("a value is there twice")
    if len(options) < 2:
        raise ValueError(f"that is one value, so there is nothing to sweep: {_HOW}")
    return Choice(options)


def _ends(low: float, high: float) -> tuple[float, float]:
    if not low < high:
        raise ValueError("the lower end comes first, and both differ")
    return (
        (low, high) if isinstance(low, int) and isinstance(high, int) else (float(low), float(high))
    )


def _number(text: str) -> float:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    raise ValueError(f"{text!r} is not a number: {_HOW}")


def _option(text: str) -> str | int | float | bool | None:
    if not text:
        raise ValueError(f"a value is missing: {_HOW}")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, str | int | float | bool | None) else text
