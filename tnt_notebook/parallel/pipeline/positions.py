"""Which positions of a pipeline have which weights, and stand in where they have none to train."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import keras

from tnt_notebook.keras.optimizers import is_multi, trained_by, with_inner
from tnt_notebook.parallel.pipeline.stage import StageModel
from tnt_notebook.parallel.step.weights import Positions


def positions_of(
    model: keras.Model, stages: Sequence[StageModel], rank_of: Sequence[int]
) -> tuple[Positions, dict[int, list[keras.Variable]]]:
    """The positions that have a weight, by its id; and by position the weights that it has only to
    stand in for others.

    A position that trains no weights of an optimizer has the smallest of them. So its optimizer
    goes on with those of the others: counts steps, scales losses, and is there when norms and
    overflows are exchanged.

    Args:
        rank_of: the position of each stage.
    """
    found: dict[int, set[int]] = {}
    for stage in stages:
        for variable in stage.variables():
            found.setdefault(id(variable), set()).add(rank_of[stage.number])
    stands_in: dict[int, list[keras.Variable]] = {}
    for trainable in _trained_by_each_optimizer(model, found.keys()):
        busy = {position for v in trainable for position in found[id(v)]}
        idle = {*rank_of} - busy
        if idle and trainable:
            smallest = min(trainable, key=lambda v: math.prod(v.shape))
            found[id(smallest)] |= idle
            for position in idle:
                stands_in.setdefault(position, []).append(smallest)
    return {key: tuple(sorted(positions)) for key, positions in found.items()}, stands_in


def _trained_by_each_optimizer(
    model: keras.Model, known: Collection[int]
) -> list[list[keras.Variable]]:
    trainable = [v for v in model.trainable_variables if id(v) in known]
    # A model that was not compiled, which predicts, has none.
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not any(map(is_multi, with_inner(optimizer))):
        return [trainable]
    each = [one for one in with_inner(optimizer) if len(with_inner(one)) == 1]
    own = [{id(v) for v in trained_by(one)} for one in each]
    return [[v for v in trainable if id(v) in of_one] for of_one in own]
