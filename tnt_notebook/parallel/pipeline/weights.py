"""Which ranks have which weights in a pipeline, and who exchanges gradients with whom.

Every rank has its stages' weights and their optimizer state while it trains, of those that are cut
on the mesh its blocks. A model that was built with ``tnt.lazy()`` is never whole.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, World, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.absent import is_here, is_lazy
from tnt_notebook.keras.optimizers import (
    is_multi,
    trained_by,
    with_inner,
)
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.holders import Holding, slot_of
from tnt_notebook.parallel.layers.program import WeightLayout
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.weight_blocks import WeightBlocks
from tnt_notebook.parallel.parted import seen_as_a_whole
from tnt_notebook.parallel.pipeline.groups import OverGroups
from tnt_notebook.parallel.pipeline.stage import StageModel
from tnt_notebook.plan.mesh import DATA, STAGE

#: Of weights: the positions that have them, and the axes over which gradients are added up.
_Key = tuple[tuple[int, ...], tuple[str, ...]]

#: Of an exchange of gradients, at least.
_CHANNELS_OF_GROUP = 64


class Weights:
    """The weights of a model in stages, each at its position in the pipeline. Made on all ranks at
    once.

    Args:
        layouts: of the weights that are cut, by id.

    Attributes:
        blocks: of the weights that are cut.
    """

    def __init__(
        self,
        over: World,
        exchange: Exchange,
        model: keras.Model,
        stages: Sequence[StageModel],
        rank_of: Sequence[int],
        ranks: MeshRanks,
        layouts: Mapping[int, WeightLayout],
    ) -> None:
        self._over, self._model = over, model
        self.blocks = WeightBlocks(model, layouts, ranks)
        if (optimizer := self.blocks.looking_at_whole) is not None:
            raise ModelError(
                f"The optimizer {type(optimizer).__name__} may look at whole weights, and in "
                f"stages on this mesh {self.blocks.cut_variables[0].path} is cut. Take Adam or "
                "another that treats each number by itself, a mesh without stages, or one whose "
                "axes cut space (depth, height, width) and no weights."
            )
        self.exchange = OverGroups(exchange, self.groups, self.seen_as_a_whole)
        self._stages, self._rank_of, self._ranks = stages, rank_of, ranks
        self._position = ranks.place[STAGE]
        self._holders = self._find_holders()
        self._stands_in_for = self._find_stand_ins()
        self._groups = self._make_groups(over)
        self._holding = Holding(over, self.holders, any(map(is_lazy, model.variables)))

    @property
    def stay_apart(self) -> bool:
        """Whether the model is never gathered, unless that is asked for."""
        return self._holding.stay_apart

    def part(self) -> None:
        """Leaves to each rank what it trains. Local; cheap if it is so already."""
        self._holding.part()
        self.blocks.part(is_here)

    def gather(self, ranks: Iterable[int] | None = None) -> None:
        """Makes the model whole on some ranks; default: on all, unless it stays apart.
        Collective."""
        if ranks is not None or not self.stay_apart:
            self.blocks.join()
        self._holding.gather(ranks)

    def groups(
        self, variables: Sequence[keras.Variable]
    ) -> Iterator[tuple[Communicator, list[int], bool]]:
        """The ranks that have the same weights: replicas, and stages that share. Of each such group
        its variables among these, by place, and whether several stages have them. What is exchanged
        before the next one is asked for has channels of its own."""
        for number, (key, group) in enumerate(self._groups.items()):
            chosen = [i for i, v in enumerate(variables) if self._key(v) == key]
            if chosen:
                # Ranks outside of the group do not count its channels.
                with ops.channels(channels.GRADIENTS.part(number, len(self._groups))):
                    yield group, chosen, len(key[0]) > 1

    @contextlib.contextmanager
    def seen_as_a_whole(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Inside, an optimizer that is given the gradients of this rank's variables clips them by
        the norm of all, and leaves a step out if any gradient of any rank is not finite.
        """
        with (
            seen_as_a_whole(self._over, self._model.optimizer, variables, self._counts),
            self.blocks.norms_of_whole(variables),
        ):
            yield

    def _counts(self, variable: keras.Variable) -> bool:
        """Whether it is for this rank to speak for a variable that several may have."""
        return self._holders[id(variable)][0] == self._position and self.blocks.counts(variable)

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
                if self._position in idle:
                    mine.append(smallest)
        return mine

    def _trained_by_each_optimizer(self) -> list[list[keras.Variable]]:
        trainable = [v for v in self._model.trainable_variables if id(v) in self._holders]
        optimizer = self._optimizer
        if optimizer is None or not any(map(is_multi, with_inner(optimizer))):
            return [trainable]
        each = [one for one in with_inner(optimizer) if len(with_inner(one)) == 1]
        known = [{id(v) for v in trained_by(one)} for one in each]
        return [[v for v in trainable if id(v) in own] for own in known]

    @property
    def _optimizer(self) -> keras.optimizers.Optimizer | None:
        """None of a model that was not compiled, which predicts."""
        return getattr(self._model, "optimizer", None)

    def _find_holders(self) -> dict[int, tuple[int, ...]]:
        """The positions in the pipeline that have a variable of a layer, by its id."""
        holders: dict[int, set[int]] = {}
        for stage in self._stages:
            position = self._rank_of[stage.number]
            for variable in stage.variables():
                holders.setdefault(id(variable), set()).add(position)
        return {key: tuple(sorted(positions)) for key, positions in holders.items()}

    def _key(self, variable: keras.Variable) -> _Key:
        summed = self.blocks.layout_of(variable).summed | {DATA}
        axes = tuple(name for name in self._ranks.mesh.names if name in summed)
        return self._holders[id(variable)], axes

    def _make_groups(self, over: World) -> dict[_Key, Communicator]:
        """For each set of positions that share weights, and of axes over which gradients of these
        are added up, the ranks that do so. Collective."""
        held = [v for v in self._model.trainable_variables if id(v) in self._holders]
        keys = sorted({self._key(variable) for variable in held})
        if len(keys) * _CHANNELS_OF_GROUP > channels.GRADIENTS.count:
            raise ModelError("Too many sets of stages share weights. Ask for fewer stages.")
        ranks, mesh = self._ranks, self._ranks.mesh
        groups: dict[_Key, Communicator] = {}
        for positions, axes in keys:
            if len(positions) == 1:
                groups[positions, axes] = ranks.group(axes)
                continue
            others = {n: at for n, at in ranks.place.items() if n not in {*axes, STAGE}}
            line = 1 + mesh.rank(others) if self._position in positions else 0
            groups[positions, axes] = over.split(line)
        return groups

    def holders(self) -> list[tuple[keras.Variable, list[int]]]:
        """Each variable of the model and its optimizer, with the ranks that work with it."""
        mesh, model = self._ranks.mesh, self._model
        position_of = [mesh.place(rank)[STAGE] for rank in range(mesh.size)]
        ranks_of = {
            key: [rank for rank, position in enumerate(position_of) if position in positions]
            for key, positions in self._holders.items()
        }
        result = [(v, ranks_of[id(v)]) for v in model.variables if id(v) in ranks_of]
        everybody = [*range(self._over.size)]
        for variable in self._optimizer.variables if self._optimizer else []:
            about = slot_of(variable, model.trainable_variables)
            result.append((variable, everybody if about is None else ranks_of[id(about)]))
        return result
