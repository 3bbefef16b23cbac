"""What a fit that followed a plan teaches: kept for the record, and for the next plan of its model.

A step is sampled every half second, and stands for those since the sample before: the median one of
them, so that neither the first step of an epoch nor one that followed a sample counts. Times of
layers are corrected where there were several samples.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnt_notebook.comm import World
from tnt_notebook.parallel.training.overheads import BESIDE, BUSY, key_of_machines
from tnt_notebook.plan import measurements
from tnt_notebook.plan.outcome import (
    LEAST_SAMPLES,
    LEAST_STEPS,
    Outcome,
    corrected,
    outcome_of,
    sentence,
)  # fmt: skip
from tnt_notebook.plan.promise import Promise
from tnt_notebook.telemetry.breakdown import Breakdown, mean
from tnt_notebook.telemetry.evidence import Evidence


def learnt(
    over: World,
    promise: Promise,
    step_s: float,
    steps: int,
    samples: Sequence[list[Breakdown]],
) -> str:
    """Compares a fit with its plan, keeps both where the plan was made for these ranks, and
    corrects what is known of the model; on rank 0.

    Args:
        step_s: seconds of the median step of the run.
        steps: of it.
        samples: of steps of median length, where their time went on each rank; at least one.

    Returns:
        How far off the plan was, if that is worth a word.
    """
    if steps < LEAST_STEPS:
        return ""
    of_ranks = Evidence([*samples], step_s=step_s).of_ranks
    outcome = outcome_of(promise, step_s, mean(of_ranks)._asdict())
    if promise.ranks_key == key_of_machines(over):
        measurements.add_fit(promise.ranks_key, promise.step_s, step_s)
        if len(samples) >= LEAST_SAMPLES:
            _correct(outcome)
    return sentence(outcome)


def _correct(outcome: Outcome) -> None:
    """Corrects what is kept of a model, if it is."""
    key, kinds = outcome.promise.model_key, (BUSY, BESIDE)
    known = [measurements.load_numbers(kind, key, 1) for kind in kinds]
    busy, beside = (numbers[0] if numbers else 1.0 for numbers in known)
    new = corrected(busy, beside, outcome)
    for kind, numbers, number in zip(kinds, known, new, strict=True):
        if numbers is not None:
            measurements.save_numbers(kind, key, (number,))
