"""What the ranks of a pipeline did, and when: from the backend's trace."""

from __future__ import annotations

from typing import cast

from tnt_notebook.plan.schedule import Action, Kind
from tnt_notebook.plan.simulate import Span, Timeline
from tnt_notebook.telemetry.step_trace import ACTIONS, Box, StepTrace, boxes, replicas


def action_of(box: Box) -> Action:
    """What a box of one of the kinds `ACTIONS` shows."""
    return Action(cast(Kind, box.kind), box.stage, box.number)


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
            action_of(box),
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
