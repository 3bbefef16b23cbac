"""Whether what was read from a file is a frame: files are damaged, and written by others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, get_args

from tnt_notebook.telemetry.breakdown import PARTS
from tnt_notebook.telemetry.frame import FRAME_VERSION, Frame, Phase, State
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import StepTrace

Check = Callable[[Any], bool]


class NewerError(ValueError):
    """Written by a version of this package that is newer than this one."""


def frame_of(line: bytes) -> Frame:
    """The frame that a line of JSON holds.

    Raises:
        NewerError: it is a frame of a later version.
        ValueError: it is none; the message says why, without a full stop.
    """
    value = _parsed(line)
    if not isinstance(value, dict):
        raise ValueError("this is not a frame")
    version = value.get("v", 0)
    if _count(version) and version > FRAME_VERSION:
        raise NewerError(
            f"frames of version {version}, and this tnt_notebook reads {FRAME_VERSION}"
        )
    _check(value, _FRAME, "a frame")
    ranks = len(value["samples"])
    of_ranks = [value[name] for name in ("rates", "breakdown", "memory") if name in value]
    if not ranks or any(len(column) != ranks for column in of_ranks):
        raise ValueError("the number of ranks of this frame is unclear")
    if "step_trace" in value:
        checked_step(value["step_trace"])
    frame: Frame = value  # type: ignore[assignment]
    return frame


def step_of(text: bytes) -> StepTrace:
    """The step trace that a text of JSON holds.

    Raises:
        ValueError: it holds none.
    """
    return checked_step(_parsed(text))


def checked_step(value: Any) -> StepTrace:
    """The same, if it is a step trace.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, dict):
        raise ValueError("this is not a step trace")
    _check(value, _STEP, "a step trace")
    for row in value["rows"]:
        if not isinstance(row, dict):
            raise ValueError("a row of a step trace is broken")
        _check(row, _RANK, "a row of a step trace")
        if len({len(row[column]) for column in _COLUMNS}) != 1:
            raise ValueError("the columns of a step trace differ in length")
    trace: StepTrace = value  # type: ignore[assignment]
    return trace


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("this is nested too deeply") from None
    except ValueError:  # of UTF-8 too
        raise ValueError("this is not JSON") from None


def _no_number(name: str) -> None:
    raise ValueError(name)


def _check(value: dict[str, Any], fields: dict[str, Check], what: str) -> None:
    for name, is_right in fields.items():
        optional = name.endswith("?")
        name = name.rstrip("?")
        if name not in value:
            if optional:
                continue
            raise ValueError(f"{what} without {name!r}")
        if not is_right(value[name]):
            raise ValueError(f"{name!r} of {what} is broken")


def _number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) is float and math.isfinite(value)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _one_of(words: tuple[str, ...]) -> Check:
    return lambda value: isinstance(value, str) and value in words


def _row(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_or_none(_number), value.values()))


def _finished_epoch(value: Any) -> bool:
    return _row(value) and _number(value.get("epoch"))


def _breakdown(value: Any) -> bool:
    return _list_of(_number)(value) and len(value) == len(PARTS)


def _kinds(value: Any) -> bool:
    return isinstance(value, str) and set(value) <= set(BOX_KINDS)


_FRAME: dict[str, Check] = {
    **dict.fromkeys(("v", "seq", "epoch", "epochs", "step"), _count),
    **dict.fromkeys(("time", "start", "elapsed"), _number),
    "phase": _one_of(get_args(Phase)),
    "state": _one_of(get_args(State)),
    "steps": _or_none(_count),
    "eta": _or_none(_number),
    "logs": _row,
    "rates": _list_of(_number),
    "samples": _list_of(_count),
    "sharing": lambda value: _count(value) and value > 0,
    "breakdown?": _list_of(_breakdown),
    "memory?": _list_of(_count),
    **dict.fromkeys(("energy?", "flops?", "rate?"), _number),
    "checkpoint?": _row,
    "rows?": _list_of(_finished_epoch),
}
_STEP: dict[str, Check] = {
    "time": _number,
    "seconds": _number,
    "tick": _positive,
    "clock_error": _number,
    "pipeline": _count,
    "ranks": _count,
    "schedule?": lambda value: isinstance(value, str),
    "less_idle?": lambda value: isinstance(value, str),
    "micro_batches?": _count,
    "formula?": _number,
    "rows": lambda value: isinstance(value, list),
}
_COLUMNS = ("kinds", "stages", "numbers", "begins", "lengths")
_RANK: dict[str, Check] = {
    "rank": _count,
    "kinds": _kinds,
    **dict.fromkeys(("stages", "numbers", "begins", "lengths"), _list_of(_count)),
}
