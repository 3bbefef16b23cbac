"""A study of scaling: what is asked, what a run of it says, and what follows from all of them.

::

    round 1     ranks 1    ranks 2    ranks 2, weak    ranks 4    ranks 4, weak
    round 2     ranks 1    ranks 2    ...

Strong scaling: the same global batch for any number of ranks. Weak scaling: a batch that grows with
them; on the fewest ranks both are the same run. All is told by the ranks' own telemetry: the first
step of an epoch, which traces, is none of those that count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from tnt_notebook.telemetry import analysis
from tnt_notebook.telemetry.frame import Frame, Row

Mode = Literal["strong", "weak"]


@dataclass(frozen=True)
class Target:
    """A metric of an epoch, and the value at which training has solved its task."""

    metric: str
    value: float
    maximise: bool

    def reached(self, row: Row) -> bool:
        """Whether an epoch has it."""
        found = row.get(self.metric)
        if found is None or not math.isfinite(found):
            return False
        return found >= self.value if self.maximise else found <= self.value

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.maximise else '<='} {self.value:g}"


@dataclass(frozen=True)
class Question:
    """What to measure.

    Attributes:
        ranks: numbers of them, ascending.
        modes: strong, weak, or both.
        rounds: how often each is measured.
        steps: of each fit; None: as the cell says.
        until: ends each fit, and is what the time to solution is of.
        watts: per rank, to estimate energy where no counter exists.
        options: of the fits, as ``%%tnt_fit`` has them: exchange, pipeline, mesh.
    """

    ranks: tuple[int, ...]
    modes: tuple[Mode, ...] = ("strong", "weak")
    rounds: int = 3
    steps: int | None = None
    until: Target | None = None
    watts: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def least(self) -> int:
        """The fewest ranks, to which all others are compared."""
        return self.ranks[0]

    def turns(self) -> list[tuple[int, Mode]]:
        """What a round consists of."""
        return [
            (ranks, mode)
            for ranks in self.ranks
            for mode in (self.modes if ranks > self.least else self.modes[:1])
        ]


@dataclass(frozen=True)
class Run:
    """A fit of the study.

    Attributes:
        ranks, mode, round: which; rounds count from 1.
        batch: samples of a global batch.
        step_s: seconds of the median step.
        samples_per_s: of all ranks, by that step.
        epoch_s: of the steps of an epoch; None: its length is not known.
        first_step_s: from the begin of the cell to the end of its first step: data, model, tracing.
        solution_s: from the first step to the solution: the target, or else the end of the last
            epoch, its validation included; None: not reached, or the fit had fewer steps.
        energy_j: of the whole fit, as hosts and GPUs count it; None: they do not.
        joules_per_sample: the same.
        logs: loss and metrics of the epoch that has reached the target, else of the last one.
        limit: what limits training, in a sentence; "" where too little was seen.
        parts: of the median step, seconds by part, the mean over ranks.
        shared_input: whether every rank does the work of input for all.
    """

    ranks: int
    mode: Mode
    round: int
    batch: int
    step_s: float
    samples_per_s: float
    epoch_s: float | None
    first_step_s: float
    solution_s: float | None
    energy_j: float | None
    joules_per_sample: float | None
    logs: Row
    limit: str
    parts: dict[str, float]
    shared_input: bool


@dataclass
class Measured:
    """What a study has found, so far.

    Attributes:
        machine: of each rank that takes part, what it runs on: host, processor,
            numbers of cores, load, GPUs, links, why energy is not counted, versions.
        plans: by ranks and mode, on the fewest ranks of the first mode, what the plan says, as
            :func:`tnt_notebook.plan.prediction.as_json` gives it.
        unplanned: why there is no plan of it; "" where there is.
        took_s: the whole study.
        complete: whether it has come to its end.
    """

    question: Question
    machine: list[dict[str, Any]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    plans: dict[tuple[int, Mode], dict[str, Any]] = field(default_factory=dict)
    unplanned: str = ""
    took_s: float = 0.0
    complete: bool = False


def run_of(
    frames: Sequence[Frame],
    ranks: int,
    mode: Mode,
    round: int,
    question: Question,
    first_step_s: float,
) -> Run | None:
    """What the frames of a cell say of its last fit; None where it had no step to measure.

    Args:
        first_step_s: see :class:`Run`.
    """
    fit = analysis.main_run(frames)
    rate, step_s = analysis.median_samples_per_s(fit), analysis.median_step_s(fit)
    if not fit or fit[-1]["phase"] != "fit" or not rate or not step_s:
        return None
    parts = analysis.breakdowns(fit)
    means = [sum(seconds) / len(parts) for seconds in zip(*parts, strict=True)]
    steps, samples = fit[-1]["steps"], sum(analysis.total_samples(fit)) / fit[-1]["sharing"]
    energy = analysis.energy_of(fit)
    return Run(
        ranks, mode, round, batch=int(0.5 + rate * step_s), step_s=step_s, samples_per_s=rate,
        epoch_s=steps * step_s if steps and not _is_cut(steps, question) else None,
        first_step_s=first_step_s, solution_s=_solution_s(fit, step_s, question),
        energy_j=energy, joules_per_sample=energy / samples if energy and samples else None,
        logs=_logs(fit, question.until), limit=analysis.limit_of(fit),
        parts=dict(zip(parts[0]._fields, means, strict=True)) if parts else {},
        shared_input="input" in fit[-1],
    )  # fmt: skip


def _logs(fit: Sequence[Frame], until: Target | None) -> Row:
    """Loss and metrics of the epoch that has reached the target, else of the last one."""
    rows = analysis.epoch_rows(fit) or [fit[-1]["logs"]]
    solved = (row for row in rows if until is not None and until.reached(row))
    return {name: value for name, value in next(solved, rows[-1]).items() if name != "epoch"}


def _is_cut(steps: int, question: Question) -> bool:
    """Whether the cell's own epochs have more steps than these."""
    return question.steps is not None and steps >= question.steps


def _solution_s(fit: Sequence[Frame], step_s: float, question: Question) -> float | None:
    """From the begin of the first step, as if it had not traced, to the solution."""
    wanted, rows = question.until, analysis.epoch_rows(fit)
    if wanted is not None:
        solved = next((row["epoch"] for row in rows if wanted.reached(row)), None)
    else:
        solved = rows[-1]["epoch"] if rows and question.steps is None else None
    begun = next((frame["elapsed"] for frame in fit if frame["step"]), 0.0)
    told = (f["elapsed"] for f in fit if solved in [row["epoch"] for row in f.get("rows", [])])
    if solved is None or (ended := next(told, None)) is None:
        return None
    return max(0.0, ended - begun) + step_s


def rows_of(runs: Sequence[Run], question: Question) -> list[dict[str, Any]]:
    """A row for each number of ranks and mode: medians of the rounds, and how far these lie apart.

    Efficiency is the samples a second and rank, beside those of the fewest ranks: of each round its
    own ratio, since a machine's speed may change from round to round; then the median of them.

    Returns:
        Dicts with ``ranks``, ``mode``, ``rounds``, ``batch``, ``steps_per_s``, ``samples_per_s``,
        ``low_samples_per_s``, ``high_samples_per_s`` (of the slowest and the fastest round),
        ``speedup``, ``efficiency``, ``low_efficiency``, ``high_efficiency``, ``epoch_s``,
        ``solution_s``, ``first_step_s``, ``energy_j``, ``joules_per_sample``, ``energy``
        (``counted``, ``estimate`` or "") and ``limit``. What is not known is None.
    """
    rows = []
    for mode in question.modes:
        for ranks in question.ranks:
            own = of_turn(runs, ranks, mode, question)
            ratios = [
                run.samples_per_s / base.samples_per_s * question.least / ranks
                for run in own
                for base in of_turn(runs, question.least, mode, question)
                if base.round == run.round
            ]
            if own and ratios:
                rows.append(_row(own, ratios, ranks, mode, question))
    return rows


def of_turn(runs: Sequence[Run], ranks: int, mode: Mode, question: Question) -> list[Run]:
    """The runs on so many ranks; on the fewest both modes are the same."""
    return [
        run for run in runs if run.ranks == ranks and (run.mode == mode or ranks == question.least)
    ]


def _row(
    own: Sequence[Run], ratios: Sequence[float], ranks: int, mode: Mode, question: Question
) -> dict[str, Any]:
    rates = [run.samples_per_s for run in own]
    energy = _median([run.energy_j for run in own])
    per_sample = _median([run.joules_per_sample for run in own])
    solution = _median([run.solution_s for run in own])
    counted = "counted" if per_sample is not None else ""
    if per_sample is None and question.watts is not None:
        counted, watts = "estimate", question.watts * ranks
        per_sample = watts / median(rates)
        energy = None if solution is None else watts * solution
    typical = sorted(own, key=lambda run: run.samples_per_s)[len(own) // 2]
    return {
        "ranks": ranks, "mode": mode, "rounds": len(own), "batch": typical.batch,
        "steps_per_s": 1 / median(run.step_s for run in own), "samples_per_s": median(rates),
        "low_samples_per_s": min(rates), "high_samples_per_s": max(rates),
        "speedup": median(ratios) * ranks / question.least, "efficiency": median(ratios),
        "low_efficiency": min(ratios), "high_efficiency": max(ratios),
        "epoch_s": _median([run.epoch_s for run in own]), "solution_s": solution,
        "first_step_s": median(run.first_step_s for run in own), "energy_j": energy,
        "joules_per_sample": per_sample, "energy": counted, "limit": typical.limit,
    }  # fmt: skip


def unfit(run: Run, runs: Sequence[Run], question: Question) -> str:
    """Why a run says nothing of scaling: its batch is not the one that it has to have; "" where all
    is well."""
    base = next((one for one in runs if one.ranks == question.least), None)
    if base is None or run.ranks == question.least:
        return ""
    wanted = base.batch * (run.ranks / question.least if run.mode == "weak" else 1)
    if abs(run.batch - wanted) < 1:
        return ""
    return (
        f"{run.mode} scaling on {run.ranks} ranks needs batches of {wanted:g} samples, and the "
        f"fit has {run.batch}"
    )


def as_json(run: Run) -> dict[str, Any]:
    """A run as JSON values."""
    return asdict(run)


def _median(values: Sequence[float | None]) -> float | None:
    """Of what is known, if all of it is."""
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None
