"""Events made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnt_notebook.telemetry.events import EVENT, EVENT_KINDS


def events(*rows: tuple[Any, ...]) -> np.ndarray:
    """Of (kind, begin, end) or (kind, begin, end, channel)."""
    made = np.zeros(len(rows), EVENT)
    for event, (kind, begin, end, *channel) in zip(made, rows, strict=True):
        event["kind"], event["begin_ns"], event["end_ns"] = EVENT_KINDS.index(kind), begin, end
        event["channel"] = channel[0] if channel else 0
    return made
