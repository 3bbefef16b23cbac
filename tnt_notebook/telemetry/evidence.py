"""What the frames of a run show of its steps: what is concluded from them, and drawn of them.

Every other second one step is sampled, on all ranks: the median one since the sample before. The
first step of an epoch, which traces or begins to read data, is no sample. The mean of samples is
what bars show, and what a conclusion speaks of: see :mod:`.limit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from tnt_notebook.telemetry.breakdown import NOTHING, Breakdown, mean, step_s
from tnt_notebook.telemetry.frame import Frame, Setup
from tnt_notebook.telemetry.sampling import evenly
from tnt_notebook.telemetry.step_trace import StepTrace

#: Samples that are looked at, spread over the run, and those whose boxes are. Fewer than the least
#: do not stand for a run: the first may be of a few steps, for which input had been read ahead.
LEAST_SAMPLES, MOST_SAMPLES, MOST_TRACES = 3, 64, 8

USUAL = Setup(
    stages=1, hosts=1, ranks_per_core=1.0, per_execution=1, input="tf.data", exchanged="gradients"
)


class Evidence(NamedTuple):
    """Of one run.

    Attributes:
        samples: sampled steps in order of time, each with where its time goes on each rank.
        traces: some of them, box by box.
        setup: of the run.
        rate: bytes a second that a rank sends to other hosts while gradients are exchanged.
        input_of_all: why every rank does the work of input for all; empty: each does its own.
        step_s: seconds of the median step of the run; None: that of the samples.
        ended: whether the run has: then there is no more to come.
    """

    samples: list[list[Breakdown]]
    traces: Sequence[StepTrace] = ()
    setup: Setup = USUAL
    rate: float | None = None
    input_of_all: str = ""
    step_s: float | None = None
    ended: bool = True

    @property
    def of_ranks(self) -> list[Breakdown]:
        """The mean of the samples on each rank, of which each counts as much, however long it took;
        as long as the median step. Empty without any."""
        lengths = [step_s(sample) for sample in self.samples]
        typical = self.step_s or (median(lengths) if lengths else 0.0)
        return [
            mean([
                Breakdown(*(seconds * typical / length for seconds in breakdown))
                for breakdown, length in zip(of_rank, lengths, strict=True)
                if length
            ] or [NOTHING])
            for of_rank in zip(*self.samples, strict=True)
        ]  # fmt: skip


def evidence_of(frames: Sequence[Frame]) -> Evidence:
    """What the frames of one run show."""
    found = [frame for frame in frames if "breakdown" in frame and _is_sample(frame)]
    if found and found[-1]["state"] != "running":
        *samples, of_all = found  # the last is the one among them that stands for the run
        found = samples if len(samples) >= LEAST_SAMPLES else [of_all]
    if not found:
        return Evidence([])
    last = found[-1]
    found = [frame for frame in found if len(frame["breakdown"]) == len(last["breakdown"])]
    traces = [frame["step_trace"] for frame in found if "step_trace" in frame]
    return Evidence(
        [[Breakdown(*parts) for parts in f["breakdown"]] for f in _some(found, MOST_SAMPLES)],
        [trace for trace in traces if trace.get("which") != "first"][-MOST_TRACES:],
        last.get("setup") or _assumed(frames),
        last.get("rate"),
        last.get("input", ""),
        frames[-1].get("step_s") or last.get("step_s"),
        frames[-1]["state"] != "running",
    )


def _is_sample(frame: Frame) -> bool:
    """Whether the step that a frame tells of stands for others; earlier versions did not say."""
    return "step_s" in frame or "spent" not in frame


def _some(frames: list[Frame], most: int) -> list[Frame]:
    return evenly(frames, most, lambda frame: frame["elapsed"])


def _assumed(frames: Sequence[Frame]) -> Setup:
    """Of a run that was kept by an earlier version."""
    last = frames[-1]
    staged = any("schedule" in frame.get("step_trace", {}) for frame in frames)
    stages, hosts = last["sharing"] if staged else 1, 1 if last.get("rate") is None else 2
    return {**USUAL, "stages": stages, "hosts": hosts}
