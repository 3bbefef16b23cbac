"""The frame: what rank 0 says about a run, a few times a second.

A frame is a plain dict of JSON values, so that it crosses any channel and lies in any file as it
is. JSON knows no NaN and no infinity: a number that is not finite travels as ``None``. What is read
is checked against these types, see :mod:`.codec`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from tnt_notebook.telemetry.activities import Activities, is_even
from tnt_notebook.telemetry.breakdown import PARTS
from tnt_notebook.telemetry.meters import Readings, is_whole
from tnt_notebook.telemetry.step_trace import Count, StepTrace

FRAME_VERSION = 3
#: What a frame has only when there is something new about it.
NOW_AND_THEN = (
    "rows", "step_s", "breakdown", "memory", "energy", "flops", "rate", "sent", "checkpoint",
    "step_trace", "activities", "meters", "setup",
)  # fmt: skip

Phase = Literal["fit", "evaluate", "predict"]
State = Literal["running", "finished", "stopped", "failed"]

Row = dict[str, float | None]
"""Loss and metrics, or other numbers with names."""
EpochRow = Annotated[Row, lambda row: row.get("epoch") is not None]
"""One finished epoch: ``{"epoch": 1, "loss": 0.7, "val_loss": 0.8}``."""
Parts = Annotated[list[float], lambda seconds: len(seconds) == len(PARTS)]
"""Seconds of a step, as in `breakdown.Breakdown`."""


#: What a run was given to read.
InputKind = Literal["arrays", "tf.data", "PyDataset", "DataLoader", "generator", "other"]


class Spent(TypedDict):
    """Where the time of a run went until a frame, on rank 0. What is neither is all that lies
    between epochs, and before the first: validation, callbacks, the begin of the run."""

    steps: Count
    """But for the first of each epoch."""
    steps_s: float
    """From the end of the step before each, callbacks between steps included."""
    first_steps: Count
    """The first of each epoch, which may trace, and begins to read data."""
    first_steps_s: float
    """Each from the begin of its epoch."""


class Setup(TypedDict):
    """How a run is set up, as far as conclusions from its steps depend on it."""

    stages: Count
    """Of its pipeline; 1 without."""
    hosts: Count
    ranks_per_core: Annotated[float, lambda ranks: ranks > 0]
    """On the host where most of them share one; 1 where each has its own."""
    per_execution: Count
    """Steps that Keras makes in one call."""
    input: InputKind
    exchanged: Literal["gradients", "weights"]
    """What ranks exchange."""
    promised_step_s: NotRequired[float]
    """Seconds of a step by the plan that it follows; without, it follows none, or has batches of
    another size."""
    promised_bytes: NotRequired[Count]
    """By that plan, what the rank that needs most needs for the model."""


class Frame(TypedDict):
    """One look at a run.

    ``epoch`` and ``step`` count from 1. Before the first step has ended they are 0, or the place of
    the checkpoint from which the run goes on. ``steps`` is ``None`` while the length of an epoch is
    unknown. Times are in seconds.
    """

    v: Count
    seq: Count
    time: float
    """Unix time of the frame."""
    start: float
    """Unix time at which the run began: tells the runs of one cell apart."""
    phase: Phase
    state: State
    epoch: Count
    epochs: Count
    step: Count
    steps: Count | None
    elapsed: float
    eta: float | None
    logs: Row
    rates: list[float]
    """Samples per second of each rank while it trains: its share of a batch by the median step.
    Zeros as long as there is none."""
    samples: list[Count]
    """Samples each rank has processed since the run began."""
    sharing: Annotated[int, lambda ranks: ranks > 0]
    """Ranks that process the same samples: those of one pipeline; without, 1."""
    exchange: NotRequired[str]
    """What ranks do with their gradients, and which promise that gives up; without, it gives up
    none."""
    input: NotRequired[str]
    """Why every rank does the work of input for all of them; without, each does its own part."""
    plan: NotRequired[str]
    """The plan that it follows, and what that promises; at the end, how far off it was. Without, it
    follows none."""
    diverged: NotRequired[str]
    """Since when the loss is NaN, and what may help; without, it is none."""
    skipped: NotRequired[str]
    """Samples that could not be read, by rank, and which; in the last frame, if there were any."""
    setup: NotRequired[Setup]
    """In frames with a breakdown."""
    spent: NotRequired[Spent]
    """In frames of version 2."""
    step_s: NotRequired[float]
    """Seconds of the median step since the last look; in the last frame, of the run."""
    breakdown: NotRequired[list[Parts]]
    """Of each rank, where the time of that step goes; in frames after a look."""
    memory: NotRequired[list[Count]]
    """MiB of each rank; in frames after a look."""
    energy: NotRequired[float]
    """Joules since the run began, of hosts and GPUs that count them."""
    flops: NotRequired[float]
    """Floating-point operations of the model for a sample in this phase, where they are known."""
    rate: NotRequired[float]
    """Bytes a second that a rank sends to other hosts while gradients are exchanged."""
    sent: NotRequired[float]
    """Bytes that a rank sends in a step, the mean of ranks and of all steps so far; without what it
    reads in the memory of others on its node."""
    checkpoint: NotRequired[Row]
    """The last one that is on disk: its time (Unix), its epoch and step (both counted from 1), and
    the seconds that it took; in the frame after it was written."""
    step_trace: NotRequired[StepTrace]
    """That step, box by box; in frames after a look."""
    activities: NotRequired[list[Annotated[Activities, is_even]]]
    """What ranks have done since they last told; in frames after a look."""
    meters: NotRequired[list[Annotated[Readings, is_whole]]]
    """What they have measured since then; in frames after a look."""
    rows: NotRequired[list[EpochRow]]
    """All epochs finished so far; only in frames that follow the end of an epoch or end the run."""


def news(frame: Mapping[str, Any]) -> dict[str, Any]:
    """What must not be lost with a frame that is dropped: the next one takes it along."""
    return {name: value for name, value in frame.items() if name in NOW_AND_THEN}


def with_news(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """A frame, or the news of one, with news of before: of activities and meters all, else what is
    later."""
    joined = {**earlier, **later}
    for name in ("activities", "meters"):
        if name in earlier and name in later:
            joined[name] = [*earlier[name], *later[name]]
    return joined


def finite_logs(logs: Mapping[str, Any]) -> Row:
    """The scalars among Keras logs, which may be of Python, NumPy or TensorFlow, as Python floats;
    ``None`` for NaN and infinities. Entries of more than one element are left out."""
    return {
        name: _finite(float(value))
        for name, value in logs.items()
        if math.prod(getattr(value, "shape", ())) == 1
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
