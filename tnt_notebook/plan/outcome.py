"""What came of a plan: the step that it promised beside the one that was measured, part by part,
and what the next plan of the same model learns from that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from tnt_notebook.plan.promise import Promise

#: Fewer steps say little of a plan, and fewer samples of where their time goes nothing.
LEAST_STEPS, LEAST_SAMPLES = 24, 3
#: By less a plan is not off so that it is worth a word.
_WORTH_A_WORD = 0.1
#: How far plans are off, in the median: of those in docs/measured/plan.md; and from how many fits
#: on it is known better.
_USUAL_ERROR, _ENOUGH = 0.11, 5
#: Corrections stay within these.
_BUSY, _BESIDE = (1.0, 16.0), (0.125, 8.0)
#: Overhead is not corrected where the plan has more of the step exchanged, or ranks wait so much of
#: it for input: it cannot be told from these then.
_UNCLEAR = 0.1

_WORDS = {
    "layers": "layers",
    "stages": "waiting for other stages",
    "exchange": "exchanging gradients, with waiting for the last rank,",
    "overhead": "Keras's loop, metrics and the optimizer",
    "input": "waiting for input",
}


class Outcome(NamedTuple):
    """Of a fit.

    Attributes:
        promise: that it followed.
        step_s: seconds of the median step.
        parts: of that, as of ``promise.parts``; empty: it is not known.
    """

    promise: Promise
    step_s: float
    parts: dict[str, float]

    @property
    def ratio(self) -> float:
        """How many times as long a step took as promised."""
        return self.step_s / self.promise.step_s


def outcome_of(promise: Promise, step_s: float, measured: Mapping[str, float]) -> Outcome:
    """Compares.

    Args:
        step_s: seconds of the median step.
        measured: of it, as :class:`tnt_notebook.telemetry.Breakdown` names them; the mean of ranks.
            Empty, or of no seconds: they are not known.
    """
    if not any(measured.values()):
        return Outcome(promise, step_s, {})
    parts = {
        "layers": measured["work"] + measured["conversion"],
        "stages": measured["wait"],
        "exchange": measured["skew"] + measured["exchange"],
        "overhead": measured["other"],
        "input": measured["input"],
    }
    return Outcome(promise, step_s, parts)


def sentence(outcome: Outcome) -> str:
    """How far off a plan was, and which part of it most; empty: not so that it is worth a word."""
    ratio, promised = outcome.ratio, outcome.promise.parts
    if abs(ratio - 1) <= _WORTH_A_WORD:
        return ""
    off = f"the plan was {abs(ratio - 1):.0%} {'short' if ratio > 1 else 'long'}"
    if not outcome.parts or not promised:
        return off
    towards = math.copysign(1.0, ratio - 1)
    worst = max(promised, key=lambda part: towards * (outcome.parts[part] - promised[part]))
    took, said = outcome.parts[worst], promised[worst]
    return f"{off}: {_WORDS[worst]} took {_ms(took)} where {_ms(said)} were promised"


def corrected(busy: float, beside: float, outcome: Outcome) -> tuple[float, float]:
    """What is kept of a model, moved halfway (of logarithms) to what a fit has shown, whatever the
    plan reckoned with that the fit followed. So the same plan may be followed again and again.
    Where few ranks work at the same time, noise says as much of ``busy`` as they do: it moves less.

    Args:
        busy, beside: as they are kept, as of :class:`~tnt_notebook.plan.overheads.Overheads`.
    """
    promise, measured = outcome.promise, outcome.parts
    promised, company = promise.parts, promise.company
    if not measured or not promised:
        return busy, beside
    if company and promised["layers"] and measured["layers"]:
        slowed = 1 + (promise.busy - 1) * company
        slowed *= measured["layers"] / promised["layers"]
        busy = _moved(busy, 1 + (slowed - 1) / company, company / 2, *_BUSY)
    unclear = _UNCLEAR * outcome.step_s
    if promised["overhead"] and max(promised["exchange"], measured["input"]) <= unclear:
        # Steps in which nothing is done were measured with votes and metrics, for which ranks wait.
        taken = measured["overhead"] + measured["input"]
        taken += max(0.0, measured["exchange"] - promised["exchange"])
        beside = _moved(beside, promise.beside * taken / promised["overhead"], 0.5, *_BESIDE)
    return busy, beside


def record(fits: Sequence[tuple[float, float]]) -> str:
    """How well plans have done, in a sentence; empty: there were none.

    Args:
        fits: of each, seconds of a step, promised and measured.
    """
    if not fits:
        return ""
    ratios = sorted(measured / promised for promised, measured in fits)
    if len(ratios) == 1:
        return f"1 fit by plan on these ranks: steps took {ratios[0]:.2f} times what was promised."
    return (
        f"{len(ratios)} fits by plan on these ranks: steps took {ratios[0]:.2f} to "
        f"{ratios[-1]:.2f} times what was promised (median {median(ratios):.2f})."
    )


def usual_error(fits: Sequence[tuple[float, float]]) -> float:
    """How far plans are off, in the median: what is promised to take less longer than that may be
    as fast.

    Args:
        fits: as of :func:`record`.
    """
    if len(fits) < _ENOUGH:
        return _USUAL_ERROR
    return median(abs(measured / promised - 1) for promised, measured in fits)


def _moved(kept: float, shown: float, part: float, least: float, most: float) -> float:
    """Such a part of the way (of logarithms) from a factor to another, between bounds."""
    shown = min(most, max(least, shown))
    return min(most, max(least, kept * (shown / kept) ** part))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
