"""Which ranks have which weights in a pipeline, and who exchanges gradients with whom.

Every rank has its stages' weights and their optimizer state while it trains. A model that was built
with ``tnt.lazy()`` is never whole.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, World, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.absent import is_lazy
from tnt_notebook.keras.optimizers import (
    is_multi,
    trained_by,
    with_inner,
)
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.holders import Holding, slot_of
from tnt_notebook.parallel.parted import seen_as_a_whole
from tnt_notebook.parallel.pipeline.groups import OverGroups
from tnt_notebook.parallel.pipeline.layout import Layout
from tnt_notebook.parallel.pipeline.stage import StageModel

#: Of an exchange of gradients, at least.
_CHANNELS_OF_GROUP = 64


class Weights:
    """The weights of a model in stages, each at its position in the pipeline. Made on all ranks at
    once.

    Attributes:
        holding: how the model is whole.
    """

    def __init__(
        self,
        over: World,
        exchange: Exchange,
        model: keras.Model,
        stages: Sequence[StageModel],
        rank_of: Sequence[int],
        layout: Layout,
    ) -> None:
        self._over, self._model = over, model
        self.exchange = OverGroups(exchange, self.groups, self.seen_as_a_whole)
        self._stages, self._rank_of, self._layout = stages, rank_of, layout
        self._holders = self._find_holders()
        self._stands_in_for = self._find_stand_ins()
        self._groups = self._make_groups(over)
        self.holding = Holding(over, self._holders_of_all, any(map(is_lazy, model.variables)))

    def groups(
        self, variables: Sequence[keras.Variable]
    ) -> Iterator[tuple[Communicator, list[int], bool]]:
        """The ranks that have the same weights: replicas, and stages that share. Of each such group
        its variables among these, by place, and whether several stages have them. What is exchanged
        before the next one is asked for has channels of its own."""
        for number, (holders, group) in enumerate(self._groups.items()):
            chosen = [i for i, v in enumerate(variables) if self._holders[id(v)] == holders]
            if chosen:
                # Ranks outside of the group do not count its channels.
                with ops.channels(channels.GRADIENTS.part(number, len(self._groups))):
                    yield group, chosen, len(holders) > 1

    @contextlib.contextmanager
    def seen_as_a_whole(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Inside, an optimizer that is given the gradients of this rank's variables clips them by
        the norm of all, and leaves a step out if any gradient of any rank is not finite.
        """
        with seen_as_a_whole(self._over, self._model.optimizer, variables, self._counts):
            yield

    def _counts(self, variable: keras.Variable) -> bool:
        """Whether it is for this rank to speak for a variable that several may have."""
        first = self._holders[id(variable)][0] == self._layout.position
        return first and self._layout.replica == 0

    def completed(self, gradients: dict[int, Any]) -> dict[int, Any]:
        """Gradients by id of the variable, with 0 for what this rank stands in for."""
        return {id(v): tf.zeros_like(v.value) for v in self._stands_in_for} | gradients

    def _find_stand_ins(self) -> list[keras.Variable]:
        """Makes a position that trains no weights of an optimizer a holder of the smallest of them;
        gives them here.

        So its optimizer goes on with those of the others: counts steps, scales losses, and is there
        when norms and overflows are exchanged.
        """
        mine = []
        for trainable in self._trained_by_each_optimizer():
            busy = {position for v in trainable for position in self._holders[id(v)]}
            idle = sorted(set(self._rank_of) - busy)
            if idle and trainable:
                smallest = min(trainable, key=lambda v: math.prod(v.shape))
                holders = self._holders[id(smallest)]
                self._holders[id(smallest)] = tuple(sorted({*holders, *idle}))
                if self._layout.position in idle:
                    mine.append(smallest)
        return mine

    def _trained_by_each_optimizer(self) -> list[list[keras.Variable]]:
        trainable = [v for v in self._model.trainable_variables if id(v) in self._holders]
        optimizer = self._model.optimizer
        if optimizer is None or not any(map(is_multi, with_inner(optimizer))):
            return [trainable]
        each = [one for one in with_inner(optimizer) if len(with_inner(one)) == 1]
        known = [{id(v) for v in trained_by(one)} for one in each]
        return [[v for v in trainable if id(v) in own] for own in known]

    def _find_holders(self) -> dict[int, tuple[int, ...]]:
        """The positions in the pipeline that have a variable of a layer, by its id."""
        holders: dict[int, set[int]] = {}
        for stage in self._stages:
            position = self._rank_of[stage.number]
            for variable in stage.variables():
                holders.setdefault(id(variable), set()).add(position)
        return {key: tuple(sorted(positions)) for key, positions in holders.items()}

    def _make_groups(self, over: World) -> dict[tuple[int, ...], Communicator]:
        """For each set of positions that share weights, its ranks in all replicas. Collective."""
        trainable = {id(v) for v in self._model.trainable_variables}
        sets = sorted({held for key, held in self._holders.items() if key in trainable})
        if len(sets) * _CHANNELS_OF_GROUP > channels.GRADIENTS.count:
            raise ModelError("Too many sets of stages share weights. Ask for fewer stages.")
        return {
            positions: over.split(int(self._layout.position in positions)) for positions in sets
        }

    def _holders_of_all(self) -> list[tuple[keras.Variable, list[int]]]:
        """Each variable of the model and its optimizer, with the ranks that work with it."""
        layout, model = self._layout, self._model
        ranks_of = {
            key: sorted(ranks[p] for p in positions for ranks in layout.ranks)
            for key, positions in self._holders.items()
        }
        result = [(v, ranks_of[id(v)]) for v in model.variables if id(v) in ranks_of]
        everybody = [*range(self._over.size)]
        for variable in model.optimizer.variables if model.optimizer else []:
            about = slot_of(variable, model.trainable_variables)
            result.append((variable, everybody if about is None else ranks_of[id(about)]))
        return result
