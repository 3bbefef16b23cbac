"""What the ranks of a pipeline did, and when: from the backend's trace."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tnt_notebook.comm import World
from tnt_notebook.parallel.pipeline.schedule import Action, Kind, Schedule
from tnt_notebook.parallel.pipeline.simulate import Span, Timeline, spans_from_json
from tnt_notebook.telemetry.events import EVENT_KINDS, NOT_TRAINING

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


def last_step(over: World, ranks: Sequence[int], rank: int, schedule: Schedule) -> Timeline | None:
    """The latest training step on all ranks of a pipeline; None if there was none. Collective.

    Clocks of different hosts are taken as they are.

    Args:
        ranks: of the pipeline, in the world.
        rank: of this process in its pipeline.
    """
    steps = steps_on(over.trace(), rank, 1)
    everyone = over.allgather_bytes(json.dumps(steps[-1] if steps else []).encode())
    parts = [spans_from_json(json.loads(everyone[member])) for member in ranks]
    if not all(parts):
        return None
    begin = min(span.begin for part in parts for span in part)
    spans = tuple(
        span._replace(begin=span.begin - begin, end=span.end - begin)
        for part in parts
        for span in part
    )
    return Timeline(schedule.name, schedule.ranks, schedule.micro_batches, spans, measured=True)
