"""What the ranks of a pipeline did, and when: from the backend's trace."""

from __future__ import annotations

from typing import cast

import numpy as np

from tnt_notebook.parallel.pipeline.schedule import Action, Kind
from tnt_notebook.parallel.pipeline.simulate import Span, Timeline
from tnt_notebook.telemetry.events import EVENT_KINDS, NOT_TRAINING
from tnt_notebook.telemetry.step_trace import ACTIONS, StepTrace, boxes, replicas

#: What an action is called in the trace.
EVENT_OF: dict[Kind, str] = {
    "F": "forward",
    "B": "backward",
    "I": "input_gradient",
    "W": "weight_gradient",
}
_KINDS: dict[int, Kind] = {EVENT_KINDS.index(name): kind for kind, name in EVENT_OF.items()}


def number_of(action: Action, training: bool) -> int:
    """Of an action's event in the trace."""
    return (0 if training else NOT_TRAINING) | action.stage << 16 | action.micro


def steps_on(events: np.ndarray, rank: int, most: int) -> list[list[Span]]:
    """The latest training steps of one rank, at most so many, the oldest first; in seconds of
    CLOCK_MONOTONIC. All of them are of one schedule.

    Args:
        events: of the rank, as of :meth:`World.trace`; no step is under way.
        rank: in the pipeline.
    """
    found = events[np.isin(events["kind"], list(_KINDS)) & (events["channel"] < NOT_TRAINING)]
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


def timeline_from(trace: StepTrace) -> Timeline | None:
    """A step of a pipeline's first replica; None without a pipeline, or where ranks are missing."""
    ranks = next(iter(replicas(trace)), ())
    actions = [box for box in boxes(trace) if box.rank in ranks and box.kind in ACTIONS]
    if not actions:
        return None
    begin = min(box.begin for box in actions)
    spans = tuple(
        Span(
            ranks.index(box.rank),
            Action(cast(Kind, box.kind), box.stage, box.number),
            box.begin - begin,
            box.end - begin,
        )
        for box in actions
    )
    return Timeline(
        trace.get("schedule", ""),
        trace["pipeline"],
        trace.get("micro_batches", 1),
        spans,
        measured=True,
    )
