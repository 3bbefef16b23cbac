"""What the ranks of a pipeline did, and when: from the backend's trace."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tnt_notebook.comm import World
from tnt_notebook.comm.trace import EVENT_KINDS
from tnt_notebook.parallel.pipeline.schedule import Action, Kind
from tnt_notebook.parallel.pipeline.simulate import Span

#: What an action is called in the trace.
EVENT_OF: dict[Kind, str] = {
    "F": "forward",
    "B": "backward",
    "I": "input_gradient",
    "W": "weight_gradient",
}
_KINDS: dict[int, Kind] = {EVENT_KINDS.index(name): kind for kind, name in EVENT_OF.items()}


def number_of(action: Action) -> int:
    """Of an action's event in the trace."""
    return action.stage << 16 | action.micro


def steps_on(events: np.ndarray, rank: int, actions: int) -> list[list[Span]]:
    """The training steps of one rank, the oldest first; in seconds of CLOCK_MONOTONIC.

    Args:
        events: of the rank, as of :meth:`World.trace`; no step is under way.
        rank: in the pipeline.
        actions: of a step there.
    """
    found = events[np.isin(events["kind"], list(_KINDS))]
    spans = [
        Span(
            rank,
            Action(
                _KINDS[int(event["kind"])],
                int(event["channel"]) >> 16,
                int(event["channel"]) & 0xFFFF,
            ),
            1e-9 * int(event["begin_ns"]),
            1e-9 * int(event["end_ns"]),
        )
        for event in found
    ]
    whole = len(spans) // actions * actions
    spans = spans[len(spans) - whole :]  # the trace may have forgotten where the first one began
    return [spans[i : i + actions] for i in range(0, whole, actions)]


def last_step(over: World, ranks: Sequence[int], rank: int, actions: int) -> list[Span]:
    """The latest training step on all ranks of a pipeline, on all ranks of the world. Collective.

    Clocks of different hosts are taken as they are.

    Args:
        ranks: of the pipeline, in the world.
        rank: of this process in its pipeline.
        actions: of a step here.
    """
    steps = steps_on(over.trace(), rank, actions)
    own = [(s.rank, *s.action, s.begin, s.end) for s in (steps[-1] if steps else [])]
    everyone = over.allgather_bytes(json.dumps(own).encode())
    return [
        Span(place, Action(kind, stage, micro), begin, end)
        for member in ranks
        for place, kind, stage, micro, begin, end in json.loads(everyone[member])
    ]
