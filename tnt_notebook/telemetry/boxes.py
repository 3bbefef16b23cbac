"""From the events of a rank to the boxes of one of its steps: see :mod:`.step_trace`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnt_notebook.telemetry.conversions import Conversion
from tnt_notebook.telemetry.events import EVENT_OF, NOT_TRAINING, is_of, rounds_of
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import ACTIONS

#: A box as it travels between ranks; times on the clock of its rank.
BOX = np.dtype(
    [("begin_ns", "i8"), ("end_ns", "i8"), ("number", "u4"), ("stage", "u2"), ("kind", "S1")]
)

#: Boxes with numbers of their own, or made of several events; the others are as recorded.
_DERIVED = f"{ACTIONS}CLRSVX"
#: Shorter waits are not worth a box: parts of a step.
_WORTH_A_BOX = 2e-3


def boxes_of_step(
    events: np.ndarray,
    step: np.void,
    exchanges: np.ndarray,
    gradients_from: int = 0,
    training: bool = True,
    converted: Sequence[Conversion] = (),
) -> np.ndarray:
    """What a rank did in a step, as an array of dtype :data:`BOX`.

    Args:
        events: of one rank, of dtype :data:`~tnt_notebook.telemetry.events.EVENT`.
        step: one of them.
        exchanges: its collectives since the step before, of dtype
            :data:`~tnt_notebook.telemetry.collectives.COLLECTIVE`.
        gradients_from: the lowest channel on which gradients are exchanged. In a pipeline only
            these exchanges have a box: in the others, of metrics, a rank waits for the other
            stages.
        training: whether it is a training step.
        converted: its conversions in the step; boxes of them have their places here as numbers.
    """
    begin, end = int(step["begin_ns"]), int(step["end_ns"])
    inside = events[
        ~is_of(events, "step") & (events["begin_ns"] >= begin) & (events["begin_ns"] <= end)
    ]
    short = _WORTH_A_BOX * (end - begin)
    made = {letter: _recorded(inside, letter) for letter in BOX_KINDS if letter not in _DERIVED}
    arrived = int(made["D"]["end_ns"].max(initial=begin))
    made["D"] = made["D"][made["D"]["end_ns"] - made["D"]["begin_ns"] > short]
    actions = _actions(inside, training)
    # Between two steps ranks exchange little, and may wait for long.
    between = exchanges["end_ns"] <= begin
    worth_a_box = ~between | (exchanges["end_ns"] - exchanges["begin_ns"] > short)
    if len(actions):
        made["R"] = _waits(inside, actions, arrived, short)
        worth_a_box &= between | ((exchanges["channel"] >= gradients_from) & training)
    else:
        made["C"] = _computed(inside, begin, end)
    exchanged = _exchanges(exchanges[worth_a_box], short)
    sends = _sends(inside)
    return np.concatenate([*made.values(), actions, exchanged, sends, _conversions(converted)])


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


def _computed(events: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Without a pipeline: from the input on, until with the last gradient, or metric, all is
    computed.

    Optimizers of single variables may have begun before: they are not told apart.
    """
    rounds = rounds_of(events, begin, end)
    made = np.zeros(len(rounds), BOX)
    made["kind"] = "C"
    for box, (since, until) in zip(made, rounds, strict=True):
        own = events[(events["begin_ns"] >= since) & (events["end_ns"] <= until)]
        box["begin_ns"] = own["end_ns"][is_of(own, "input")].max(initial=since)
        begun = own["begin_ns"][is_of(own, "optimizer")].min(initial=until)
        done = max(own["begin_ns"][is_of(own, "ready")].tolist(), default=begun)
        box["end_ns"] = max(done, box["begin_ns"])  # late gradients are there before the input
    return made


def _exchanges(exchanges: np.ndarray, short: float) -> np.ndarray:
    """From when the last rank has come, and how long this one has waited for it."""
    _, numbers = np.unique(exchanges["channel"], return_inverse=True)
    made = np.zeros(len(exchanges), BOX)
    made["begin_ns"], made["end_ns"] = exchanges["there_ns"], exchanges["end_ns"]
    made["number"], made["kind"] = numbers, "X"
    waited = made.copy()
    waited["begin_ns"], waited["end_ns"] = exchanges["begin_ns"], exchanges["there_ns"]
    waited["stage"], waited["kind"] = exchanges["last"], "L"
    # Shorter ones are no wait, but of the exchange.
    is_short = waited["end_ns"] - waited["begin_ns"] <= short
    made["begin_ns"][is_short] = exchanges["begin_ns"][is_short]
    return np.concatenate([waited[~is_short], made])


def _conversions(converted: Sequence[Conversion]) -> np.ndarray:
    made = np.zeros(len(converted), BOX)
    made["begin_ns"] = [one.begin_ns for one in converted]
    made["end_ns"] = [one.end_ns for one in converted]
    made["number"], made["kind"] = np.arange(len(converted)), "V"
    return made


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
