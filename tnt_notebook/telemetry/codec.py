"""Frames and step traces as JSON, and back: files are damaged, and written by others.

What a frame holds is said once, by the types in :mod:`.frame` and :mod:`.step_trace`. What is read
is checked against them.
"""

from __future__ import annotations

import json
import math
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from tnt_notebook.telemetry.breakdown import Breakdown
from tnt_notebook.telemetry.frame import FRAME_VERSION, Frame
from tnt_notebook.telemetry.step_trace import StepTrace


class NewerError(ValueError):
    """Written by a version of this package that is newer than this one."""


def encode(frame: Frame) -> bytes:
    """The frame as a line of JSON."""
    return json.dumps(frame, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode_frame(line: bytes) -> Frame:
    """The frame that a line of JSON holds.

    Raises:
        NewerError: it is a frame of a later version.
        ValueError: it is none; the message says why, without a full stop.
    """
    value = _parsed(line)
    if isinstance(value, dict):
        version = value.get("v", 0)
        if type(version) is int and version > FRAME_VERSION:
            raise NewerError(
                f"frames of version {version}, and this tnt_notebook reads {FRAME_VERSION}"
            )
        if version < 3:
            _upgrade(value, version)
    _check(value, Frame, "a frame")
    ranks = len(value["samples"])
    of_ranks = [value[name] for name in ("rates", "breakdown", "memory") if name in value]
    if not ranks or any(len(column) != ranks for column in of_ranks):
        raise ValueError("the number of ranks of this frame is unclear")
    return value


def _upgrade(frame: dict[str, Any], version: int) -> None:
    """A breakdown of version 1 counts skew among exchange; one of version 2 has no conversions."""
    of_ranks = frame.get("breakdown")
    if not isinstance(of_ranks, list) or not all(isinstance(one, list) for one in of_ranks):
        return
    at = Breakdown._fields.index("skew")
    if version == 1:
        of_ranks = [[*one[:at], 0.0, *one[at:]] for one in of_ranks]
    frame["breakdown"] = [[*one, 0.0] for one in of_ranks]


def decode_step(text: bytes) -> StepTrace:
    """The step trace that a text of JSON holds; ValueError where it holds none."""
    value = _parsed(text)
    _check(value, StepTrace, "a step trace")
    return value


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("this is nested too deeply") from None
    except ValueError:  # of UTF-8 too
        raise ValueError("this is not JSON") from None


def _no_number(name: str) -> None:
    raise ValueError(name)


def _check(value: Any, schema: Any, what: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"this is not {what}")
    for name, kind in _types(schema).items():
        if name in value:
            if not _fits(value[name], kind):
                raise ValueError(f"{name!r} of {what} is broken")
        elif get_origin(kind) is not NotRequired:
            raise ValueError(f"{what} without {name!r}")


@cache
def _types(schema: type) -> dict[str, Any]:
    return get_type_hints(schema, include_extras=True)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is of a type, as the annotations of a TypedDict say it.

    Functions in ``Annotated`` are asked, too. Entries that the type does not know are passed over.
    """
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fits(value, of[0]) and all(holds(value) for holds in of[1:])
    if origin is NotRequired:
        return _fits(value, of[0])
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in of)
    if origin is Literal:
        return isinstance(value, str) and value in of
    if origin is list:
        return isinstance(value, list) and all(_fits(item, of[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, of[1]) for item in value.values())
    if kind is float:
        return (type(value) is float and math.isfinite(value)) or _fits(value, int)
    if kind is int:
        return type(value) is int and abs(value) < 2**63
    if kind in (str, type(None)):
        return type(value) is kind
    try:
        _check(value, kind, kind.__name__)
    except ValueError:
        return False
    return True
