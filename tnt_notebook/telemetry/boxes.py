"""From the events of a rank to the boxes of its last step: see :mod:`.step_trace`."""

from __future__ import annotations

import numpy as np

from tnt_notebook.telemetry.events import EVENT_OF, NOT_TRAINING, is_of
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import ACTIONS

#: A box as it travels between ranks; times on the clock of its rank.
BOX = np.dtype(
    [("begin_ns", "i8"), ("end_ns", "i8"), ("number", "u4"), ("stage", "u2"), ("kind", "S1")]
)

#: Boxes with numbers of their own, or made of several events; the others are as recorded.
_DERIVED = f"{ACTIONS}CRSX"
#: Shorter waits are not worth a box: parts of a step.
_WORTH_A_BOX = 2e-3


def last_step(events: np.ndarray, phase: int = 0, gradients_from: int = 0) -> np.ndarray:
    """What a rank did in its latest step, as an array of dtype :data:`BOX`; empty without a step.

    Args:
        events: of one rank, of dtype :data:`~tnt_notebook.telemetry.events.EVENT`.
        phase: what the step is of, by its number in :data:`~tnt_notebook.telemetry.events.PHASES`.
        gradients_from: the lowest channel on which gradients are exchanged. In a pipeline only
            these exchanges have a box: in the others, of metrics, a rank waits for the other
            stages.
    """
    steps = events[is_of(events, "step") & (events["channel"] == phase)]
    if not len(steps):
        return np.empty(0, BOX)
    begin, end = int(steps[-1]["begin_ns"]), int(steps[-1]["end_ns"])
    inside = events[
        ~is_of(events, "step") & (events["begin_ns"] >= begin) & (events["begin_ns"] <= end)
    ]
    short = _WORTH_A_BOX * (end - begin)
    made = {letter: _recorded(inside, letter) for letter in BOX_KINDS if letter not in _DERIVED}
    arrived = int(made["D"]["end_ns"].max(initial=begin))
    made["D"] = made["D"][made["D"]["end_ns"] - made["D"]["begin_ns"] > short]
    actions = _actions(inside, training=phase == 0)
    exchanges = inside
    if len(actions):
        made["R"] = _waits(inside, actions, arrived, short)
        of_gradients = (inside["channel"] >= gradients_from) & (phase == 0)
        exchanges = inside[of_gradients]
    else:
        computed_by = int(made["O"]["begin_ns"].min(initial=end))
        made["C"] = _computed(inside, arrived, computed_by)
    return np.concatenate([*made.values(), actions, _exchanges(exchanges), _sends(inside)])


def _recorded(events: np.ndarray, letter: str) -> np.ndarray:
    """A box for each event of a kind, as it was recorded."""
    return _of(events[is_of(events, BOX_KINDS[letter].event)], letter)


def _of(events: np.ndarray, letter: str) -> np.ndarray:
    made = np.zeros(len(events), BOX)
    made["begin_ns"], made["end_ns"], made["kind"] = events["begin_ns"], events["end_ns"], letter
    return made


def _actions(events: np.ndarray, training: bool) -> np.ndarray:
    """Of a pipeline, in order of time."""
    parts = []
    for kind, name in EVENT_OF.items():
        chosen = events[is_of(events, name) & ((events["channel"] < NOT_TRAINING) == training)]
        part = _of(chosen, kind)
        part["number"] = chosen["channel"] & 0xFFFF
        part["stage"] = chosen["channel"] >> 16 & 0x7FFF
        parts.append(part)
    return np.sort(np.concatenate(parts), order="begin_ns")


def _computed(events: np.ndarray, arrived: int, end: int) -> np.ndarray:
    """Without a pipeline: with the last gradient, or metric, all is computed.

    Optimizers of single variables may have begun before: they are not told apart.
    """
    ready = events[is_of(events, "ready")]["begin_ns"]
    made = np.zeros(1, BOX)
    made["begin_ns"], made["kind"] = arrived, "C"
    made["end_ns"] = int(ready.max()) if len(ready) else end
    return made


def _exchanges(events: np.ndarray) -> np.ndarray:
    """From what is copied into a bucket to what is copied out of it."""
    channels = np.unique(events[is_of(events, "copy_in")]["channel"])
    parts = [np.empty(0, BOX)]
    for number, channel in enumerate(channels):
        own = events[events["channel"] == channel]
        begins = np.sort(own[is_of(own, "copy_in")]["begin_ns"])
        ends = np.sort(own[is_of(own, "copy_out")]["end_ns"])
        part = np.zeros(min(len(begins), len(ends)), BOX)
        part["begin_ns"], part["end_ns"] = begins[: len(part)], ends[: len(part)]
        part["number"], part["kind"] = number, "X"
        parts.append(part)
    return np.concatenate(parts)


def _sends(events: np.ndarray) -> np.ndarray:
    """Numbered for each rank that they go to."""
    chosen = np.sort(events[is_of(events, "send")], order="begin_ns")
    made = _of(chosen, "S")
    made["stage"] = chosen["algorithm"]
    for peer in np.unique(chosen["algorithm"]):
        to = chosen["algorithm"] == peer
        made["number"][to] = np.arange(np.count_nonzero(to))
    return made


def _waits(events: np.ndarray, actions: np.ndarray, arrived: int, short: float) -> np.ndarray:
    """Before an action: until the last of the messages that came since the action before it."""
    received = np.sort(events[is_of(events, "receive")], order="end_ns")
    ends = received["end_ns"].astype(np.int64)
    free = np.maximum(arrived, np.concatenate([[arrived], actions["end_ns"][:-1]]))
    last = np.searchsorted(ends, actions["begin_ns"], side="right") - 1
    came = np.where(last >= 0, ends[np.maximum(last, 0)] if len(ends) else 0, 0)
    waited = came - free > short
    made = np.zeros(np.count_nonzero(waited), BOX)
    made["begin_ns"], made["end_ns"], made["kind"] = free[waited], came[waited], "R"
    made["number"] = actions["number"][waited]
    if len(made):
        made["stage"] = received["algorithm"][last[waited]]
    return made
