"""What each rank did over a run that is kept: of its frames, and of what its notebook has added.

A rank that has died tells nothing of it, nor one that is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypedDict

from tnt_notebook.telemetry.activities import Ribbon, add, mark
from tnt_notebook.telemetry.curves import curves_of


class Mark(TypedDict):
    """What ranks do that they cannot tell themselves."""

    ranks: list[int]
    name: str
    """As in the table of activities: ``dead``, ``restart``."""
    at: float
    """Unix time since when."""


class Known(TypedDict):
    """What the notebook knows of a run; Unix times."""

    began: float
    """When its cell was sent, or its ranks were started again."""
    ended: float
    marks: list[Mark]


def ribbon_of(frames: Sequence[Mapping[str, Any]], known: Known | None = None) -> Ribbon:
    """As the frames of a run say it, and its notebook, where that was there at the end."""
    told = [news for frame in frames for news in frame.get("activities", [])]
    begins = [news["begins"][0] for news in told] + [frame["start"] for frame in frames]
    ends = [frame["time"] for frame in frames]
    marks: list[Mark] = []
    if known:
        begins.append(known["began"])
        ends.append(known["ended"])
        marks = known["marks"]
    ribbon = Ribbon(min(begins, default=0.0), max(ends, default=0.0), meters=curves_of(frames))
    happened: list[tuple[float, Callable[[], object]]] = [
        *((news["begins"][0], partial(add, ribbon, news)) for news in told),
        *((one["at"], partial(mark, ribbon, **one)) for one in marks),
    ]
    for _, take_in in sorted(happened, key=itemgetter(0)):
        take_in()
    return ribbon
