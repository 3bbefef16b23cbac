"""Which state a step has changed, and by which rule it combines: known, or found by a trial.

Where people's own code trains, the trial also says whether its gradients are those of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.state import needs_trial
from tnt_notebook.parallel.combine import RULES, Change, combine, known_rules, told_rule
from tnt_notebook.parallel.step import Step
from tnt_notebook.parallel.trial import Trial, chosen_of

#: How far gradients may be apart, as a part of their norm: far more than rounding makes, and far
#: less than a step that looks at several samples. In half precision more.
_APART, _APART_IN_HALF = 0.003, 0.2

_ADVICE = (
    "Say before training how it combines: tnt.combine(variable, rule), with one of "
    f"{', '.join(map(repr, RULES))}. What is computed of the samples of all ranks by tnt.ops is "
    "the 'same'."
)


def changes_of(
    step: Step, own_step: Callable[[Any], Any], data: Any, tried: set[int]
) -> tuple[list[Change], list[Change]]:
    """What a step has done to the states of metrics, and to others. Collective where a rule is to
    be found.

    Args:
        own_step: the model's ``train_step`` or ``test_step``, which has run (was traced) as this
            step.
        data: what it was given, a rank's slice of a batch, or what that is like.
        tried: with which optimizers, by id, the step has been tried: not again where a rank alone
            traces it once more, for slices of another shape.

    Raises:
        ModelError: state is changed in a way that no rule makes equal to one process, or gradients
            are not a mean over samples.
    """
    metrics = {id(v) for v in step.model.metrics_variables}
    # Weights that no optimizer is given may follow those that it trains: a moving average of them.
    trained = {id(v) for v in step.exchanged if v.trainable} - metrics
    assigned = {id(v): v for v in step.assigned if id(v) not in trained}
    rules = known_rules(step.model) | dict.fromkeys(step.drawn, "same")
    for key, variable in assigned.items():
        if key not in rules and key not in metrics and (told := told_rule(variable)):
            rules[key] = told
    unknown = [v for key, v in assigned.items() if key not in rules]
    alone = step.over.size == 1  # of a mesh: its ranks do the same with the whole batch
    if alone:
        rules |= {id(v): "same" for v in unknown}
        unknown = []
    compiled = id(getattr(step.model, "optimizer", None))
    if unknown or (
        not alone and step.exchanged and compiled not in tried and needs_trial(step.model)
    ):
        tried.add(compiled)
        trial = Trial(step, own_step, data, unknown)
        _refuse_mixed_samples(step, trial)
        rules |= _found(trial, unknown, metrics)
    changes = [Change(v, step.before[key], rules[key]) for key, v in assigned.items()]
    return (
        [change for change in changes if id(change.variable) in metrics],
        [change for change in changes if id(change.variable) not in metrics],
    )


def _refuse_mixed_samples(step: Step, trial: Trial) -> None:
    path = max(trial.apart, key=trial.apart.__getitem__, default="")
    allowed = _APART_IN_HALF if trial.in_half else _APART
    if path and trial.apart[path] > allowed:
        raise ModelError(
            f"{step.over.size} ranks, each with its part of a batch, would not train "
            f"{type(step.model).__name__} as one process does: the gradient of {path} differs by "
            f"{trial.apart[path]:.0%}. Its code looks at several samples of a batch at a time, or "
            "its loss is no mean over them. Write a sum over samples as a mean, and what needs the "
            "other samples with tnt.ops.allgather, allreduce or reduce_mean, which give it those "
            "of all ranks."
        )


def _found(trial: Trial, unknown: list[keras.Variable], metrics: set[int]) -> dict[int, str]:
    rules = {}
    for variable in unknown:
        fitting, changed = trial.fitting[id(variable)], id(variable) in trial.changed
        if id(variable) in metrics and not changed:
            rule = "sum"  # as Keras has it
        elif not changed:
            why = trial.failure or "it did not change it, so nothing can be seen"
            raise ModelError(
                f"The training step assigns {variable.path}, and how ranks are to combine what "
                f"each makes of it could not be found out by trying: {why}. {_ADVICE}"
            )
        elif not fitting:
            raise ModelError(
                f"The training step makes of {variable.path} what ranks cannot share: of what each "
                "makes of it with its part of a batch, neither the sum nor the mean, the largest "
                f"nor the smallest is what one process makes of the whole batch. {_ADVICE}"
            )
        else:
            rule = chosen_of(fitting)
        combine(variable, rule)
        rules[id(variable)] = rule
    return rules
