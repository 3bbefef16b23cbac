"""What the frames of a run say, as plain functions over a list of frames in order of time.

The frames are those of one run; `runs` tells the runs of a cell apart, which may fit, then
evaluate, or predict within a callback.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from typing import Any

from tnt_notebook.telemetry.breakdown import Breakdown
from tnt_notebook.telemetry.evidence import evidence_of
from tnt_notebook.telemetry.frame import Frame, Row, Spent
from tnt_notebook.telemetry.limit import limit
from tnt_notebook.telemetry.step_trace import StepTrace


def runs(frames: Sequence[Frame]) -> list[list[Frame]]:
    """The frames of each run, runs in the order in which they began."""
    by_start: dict[float, list[Frame]] = {}
    for frame in frames:
        by_start.setdefault(frame["start"], []).append(frame)
    return [by_start[start] for start in sorted(by_start)]


def main_run(frames: Sequence[Frame]) -> list[Frame]:
    """The frames of the run a person asks about first: the last fit, else the last run."""
    all_runs = runs(frames)
    fits = [run for run in all_runs if run[-1]["phase"] == "fit"]
    return (fits or all_runs or [[]])[-1]


def duration(frames: Sequence[Frame]) -> float:
    """Seconds from the start of the run to its last frame."""
    return frames[-1]["elapsed"] if frames else 0.0


def total_samples(frames: Sequence[Frame]) -> list[int]:
    """Samples each rank has processed."""
    return list(frames[-1]["samples"]) if frames else []


def median_step_s(frames: Sequence[Frame]) -> float | None:
    """Seconds of the median step: so far the latest that was said, at the end that of the run.
    None where no step was looked at but the first of an epoch."""
    return _latest(frames, "step_s")


def promised_step_s(frames: Sequence[Frame]) -> float | None:
    """Seconds of a step by the plan that a run follows; None where it follows none, or no step was
    looked at."""
    setup = _latest(frames, "setup")
    return None if setup is None else setup.get("promised_step_s")


def rates(frames: Sequence[Frame]) -> list[float]:
    """Samples per second of each rank while it trains: in all steps, the first ones of epochs and
    pauses between steps included, but not what lies between epochs.

    Zeros before the first step has ended.
    """
    if not frames:
        return []
    took = spent(frames)
    if took is None:  # kept by an earlier version
        return list(frames[-1]["rates"])
    seconds = took["steps_s"] + took["first_steps_s"]
    return [samples / seconds if seconds else 0.0 for samples in total_samples(frames)]


def samples_per_s(frames: Sequence[Frame]) -> float:
    """Samples per second of all ranks while they train, as in `rates`; one that went through a
    pipeline counts once."""
    return sum(rates(frames)) / frames[-1]["sharing"] if frames else 0.0


def median_samples_per_s(frames: Sequence[Frame]) -> float:
    """A batch of usual size by the median step: samples per second if there were nothing else; 0
    where no step is known but the first of an epoch."""
    return sum(frames[-1]["rates"]) / frames[-1]["sharing"] if frames else 0.0


def whole_run_samples_per_s(frames: Sequence[Frame]) -> float:
    """Samples per second of all ranks over the whole run: tracing, validation, pauses included."""
    seconds = duration(frames)
    return sum(total_samples(frames)) / frames[-1]["sharing"] / seconds if seconds > 0 else 0.0


def spent(frames: Sequence[Frame]) -> Spent | None:
    """Where the time of the run went; None for one that was kept by an earlier version."""
    return frames[-1].get("spent") if frames else None


def breakdowns(frames: Sequence[Frame]) -> list[Breakdown]:
    """Where the time of a step of one run goes on each rank, in the mean of those that were
    sampled; empty without any."""
    return evidence_of(frames).of_ranks


def limit_of(frames: Sequence[Frame]) -> str:
    """What limits training of one run, in a sentence; "" where nothing is worth one."""
    found = limit(evidence_of(frames))
    return "" if found is None else found.sentence


def median_step(frames: Sequence[Frame]) -> StepTrace | None:
    """The step that stands for the run, box by box: so far the median one since the last look, at
    the end that of the run."""
    return _latest(frames, "step_trace")


def steps_seen(frames: Sequence[Frame]) -> list[StepTrace]:
    """The steps of a run that were looked at, box by box, each once and in order of time."""
    traces = [frame["step_trace"] for frame in frames if "step_trace" in frame]
    found = {trace["time"]: trace for trace in traces}
    return [found[time] for time in sorted(found)]


def memory_of(frames: Sequence[Frame]) -> list[int]:
    """The most bytes that each rank was seen to have in memory; empty if none was seen."""
    seen = [frame["memory"] for frame in frames if "memory" in frame]
    return [max(of_rank) << 20 for of_rank in zip(*seen, strict=True)]


def energy_of(frames: Sequence[Frame]) -> float | None:
    """Joules of the run, of hosts and GPUs that count them; None without counters."""
    return _latest(frames, "energy")


def flop_rate(frames: Sequence[Frame]) -> float | None:
    """Floating-point operations of the model a second while ranks train, on all of them; None if
    not known."""
    flops = _latest(frames, "flops")
    return None if flops is None else flops * samples_per_s(frames)


def throughput(frames: Sequence[Frame]) -> tuple[list[float], list[list[float]]]:
    """Samples per second over time, by the median of the latest steps, from when that is known.

    Returns:
        The times in seconds since the start, and for each rank its rates at these times.
    """
    measured = list(dropwhile(lambda frame: not any(frame["rates"]), frames))
    times = [frame["elapsed"] for frame in measured]
    return times, [list(rates) for rates in zip(*(f["rates"] for f in measured), strict=True)]


def epoch_rows(frames: Sequence[Frame]) -> list[Row]:
    """All finished epochs, as the latest frame that lists them has them."""
    return list(_latest(frames, "rows") or [])


def final_logs(frames: Sequence[Frame]) -> Row:
    """Loss and metrics at the end of the run.

    Those of the last epoch if it was finished; else the latest values of the unfinished one, which
    have no validation beside them.
    """
    if not frames:
        return {}
    rows = epoch_rows(frames)
    if rows and rows[-1]["epoch"] == frames[-1]["epoch"]:
        return {name: value for name, value in rows[-1].items() if name != "epoch"}
    return dict(frames[-1]["logs"])


def _latest(frames: Sequence[Frame], name: str) -> Any:
    """What the latest frame that has something by this name has; None where none has."""
    there = (frame.get(name) for frame in reversed(frames))
    return next((found for found in there if found not in (None, [])), None)
