"""Events and steps made by hand."""

from typing import Any

import numpy as np

from tnt_notebook.telemetry.events import EVENT, EVENT_KINDS
from tnt_notebook.telemetry.step_trace import Box, StepTrace, of_boxes


def events(*rows: tuple[Any, ...]) -> np.ndarray:
    """Of (kind, begin, end) or (kind, begin, end, channel)."""
    made = np.zeros(len(rows), EVENT)
    for event, (kind, begin, end, *channel) in zip(made, rows, strict=True):
        event["kind"], event["begin_ns"], event["end_ns"] = EVENT_KINDS.index(kind), begin, end
        event["channel"] = channel[0] if channel else 0
    return made


def step_of(*boxes: Box, **about: Any) -> StepTrace:
    """Of these boxes, on two ranks that are a pipeline unless something else is said."""
    usual = {"time": 0.0, "clock_error": 0.0, "pipeline": 2, "ranks": 2}
    return of_boxes(list(boxes), **{**usual, **about})
