"""The steps that the trace of a rank remembers, action by action."""

from __future__ import annotations

from typing import cast

import numpy as np

from tnt_notebook.plan.schedule import Action, Kind
from tnt_notebook.plan.simulate import Span
from tnt_notebook.telemetry.events import EVENT_KINDS, EVENT_OF, NOT_TRAINING, is_of

_KINDS = {EVENT_KINDS.index(name): cast(Kind, kind) for kind, name in EVENT_OF.items()}


def steps_on(events: np.ndarray, rank: int, most: int) -> list[list[Span]]:
    """The latest training steps of one rank, at most so many, the oldest first; in seconds of
    CLOCK_MONOTONIC. All of them are of one schedule.

    Args:
        events: of the rank, as of :meth:`World.trace`; no step is under way.
        rank: in the pipeline.
    """
    found = events[is_of(events, *EVENT_OF.values()) & (events["channel"] < NOT_TRAINING)]
    # A step has each action once, and not those in which there is nothing to do.
    seen: set[tuple[int, int]] = set()
    for event in reversed(found):
        if (key := (int(event["kind"]), int(event["channel"]))) in seen:
            break
        seen.add(key)
    size = max(1, len(seen))
    steps = min(most, len(found) // size)
    spans = [
        Span(
            rank,
            Action(_KINDS[int(kind)], int(number) >> 16, int(number) & 0xFFFF),
            1e-9 * int(begin),
            1e-9 * int(end),
        )
        for begin, end, kind, number in found[["begin_ns", "end_ns", "kind", "channel"]][
            len(found) - steps * size :
        ]
    ]
    return [spans[i : i + size] for i in range(0, len(spans), size)]
