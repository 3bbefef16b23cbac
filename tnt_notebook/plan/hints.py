"""How layers are to be divided, as it is typed: ``conv.*: filters=model, height=height``; and what
a rank may need."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from tnt_notebook.errors import MeshError
from tnt_notebook.plan.mesh import Layouts, Split
from tnt_notebook.sizes import parsed_size

#: What a way may be called; see :class:`~tnt_notebook.plan.mesh.Split`.
WAYS = ("channels", "columns", "depth", "filters", "heads", "height", "rows", "width")

_EXAMPLE = "write, for instance, --layout 'conv.*: filters=model'"


def parsed_hint(text: str) -> tuple[str, dict[str, str]]:
    """The pattern for names of layers, and by way its axis.

    Raises:
        MeshError: it is none; says how they are written.
    """
    pattern, colon, said = text.rpartition(":")
    pattern, ways = pattern.strip(), dict[str, str]()
    if not colon or not pattern:
        raise MeshError(f"{text!r} does not name any layers: {_EXAMPLE}.")
    try:
        re.compile(pattern)
    except re.error as error:
        raise MeshError(f"{pattern!r} is not a regular expression: {error}.") from None
    for part in said.split(","):
        way, equals, axis = (word.strip() for word in part.partition("="))
        if not (equals and way.isidentifier() and axis.isidentifier()):
            raise MeshError(f"{part.strip()!r} is not a way to divide a layer: {_EXAMPLE}.")
        if way in ways or axis in ways.values():
            twice = way if way in ways else axis
            raise MeshError(f"{text!r} uses {twice} twice: each way needs an axis of its own.")
        ways[way] = axis
    return pattern, ways


def parsed_hints(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Several of them, as plain data.

    Raises:
        MeshError: one is none, or two are of the same pattern.
    """
    hints: dict[str, dict[str, str]] = {}
    for text in texts:
        pattern, ways = parsed_hint(text)
        if pattern in hints:
            raise MeshError(f"{pattern!r} is given twice: put all of it in one --layout.")
        hints[pattern] = ways
    return hints


def layouts_of(hints: Mapping[str, Mapping[str, str]]) -> Layouts:
    """What :func:`parsed_hints` gave, as ``tnt.Model`` takes it."""
    return {pattern: Split(**ways) for pattern, ways in hints.items()}


def memory_of(limit: int | str | None) -> float:
    """Bytes that a rank may need; infinite without a limit.

    Args:
        limit: bytes, or as ``"4GB"``.

    Raises:
        MeshError: it is no size.
    """
    if limit is None:
        return math.inf
    try:
        count = parsed_size(limit) if isinstance(limit, str) else limit
    except ValueError as error:
        raise MeshError(f"memory_limit {error}.") from None
    if isinstance(count, bool) or not isinstance(count, (int, float)) or count < 1:
        raise MeshError(f"memory_limit is a number of bytes, not {limit!r}.")
    return count
