"""Files that whoever reads sees as they were or as they are; and files for their owner only."""

from __future__ import annotations

import json
import os
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict


def replace(path: Path, value: Any) -> None:
    """Writes JSON, for its owner alone; who reads sees the old file or the new."""
    beside = path.with_name(f"{path.name}.new")
    with open(beside, "w", encoding="utf-8", opener=private) as file:
        file.write(json.dumps(value, separators=(",", ":"), default=str))  # .dump is slow
    os.replace(beside, path)


def write_new(path: Path, text: str, force: bool) -> Path:
    """Writes a file that is not there yet: who reads sees none, or all of it.

    Args:
        force: whether one that is there may be replaced.

    Raises:
        FileExistsError: it is there, and may not be replaced.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        if force:
            os.replace(beside, path)
        else:
            _put(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def _put(beside: Path, path: Path) -> None:
    """Gives a file a name that no other has."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise FileExistsError(f"{path} is there already; force=True replaces it") from None
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(f"{path} is there already; force=True replaces it") from None
        os.replace(beside, path)


def private(path: str, flags: int) -> int:
    """Opens a file that its owner alone may read; an opener for :func:`open`."""
    return os.open(path, flags, 0o600)


def typed(kind: Any, said: Any) -> Any:
    """A value of a type, from what a file of JSON holds; what the type does not know is left out.

    Args:
        kind: a dataclass, a TypedDict, or what their fields may be: a plain type, a tuple of such,
            or one or None.

    Raises:
        TypeError, KeyError, ValueError, OverflowError: it holds something else.
    """
    parts = get_args(kind)
    if is_dataclass(kind) or is_typeddict(kind):
        return kind(**{n: typed(hint, said[n]) for n, hint in get_type_hints(kind).items()})
    if get_origin(kind) is UnionType:
        return None if said is None else typed(parts[0], said)
    if get_origin(kind) in (tuple, list):
        values = said if isinstance(said, tuple) else typed(list, said)  # as it was written
        each = [parts[0]] * len(values) if parts[1:] in ((), (...,)) else parts
        return get_origin(kind)(typed(one, v) for one, v in zip(each, values, strict=True))
    if kind is float and isinstance(said, int):
        return float(said)
    if not isinstance(said, get_origin(kind) or kind):
        raise TypeError(f"{said!r} is no {kind}")
    return said
