"""What a tracker is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tnt_notebook.telemetry import State


class Fit(NamedTuple):
    """What a run of a tracker begins with.

    Attributes:
        folder: "" is where the tracker keeps runs by itself.
        group: of runs that belong together; "" is none.
        parameters: numbers and texts, by names.
    """

    name: str
    folder: str
    group: str
    parameters: Mapping[str, Any]


class Run(NamedTuple):
    """A run of a tracker, as two functions.

    Attributes:
        log: takes the number of an epoch, counted from 1, and figures by names. Epochs come in
            order; the last one may come twice, with other names.
        end: takes how the fit has ended. Nothing is logged after it.
    """

    log: Callable[[int, Mapping[str, float]], None]
    end: Callable[[State], None]
