"""Which ranks have which weights of a model while it trains, and who exchanges gradients with whom.

::

    whole copies   a rank has all; of what an optimizer keeps of a weight, its owner alone has it
                   where an exchange says so
    stages         a rank has the weights of its stages
    blocks         of a weight that is cut along axes of the mesh a rank has its block

What an optimizer keeps of a weight is where the weight is. A model that was built with
``tnt.lazy()`` is never whole, unless all ranks have all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import Communicator, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.lazy_variables import is_here, is_lazy, materialized_when_used
from tnt_notebook.keras.optimizers import trained_by
from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.consistency.holders import Holding, slot_of
from tnt_notebook.parallel.consistency.model_state import optimizers_of, state_of
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.parallel.exchange.groups import OverGroups
from tnt_notebook.parallel.exchange.state import ExchangeState
from tnt_notebook.parallel.layers.program import WeightLayout
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.weight_blocks import WeightBlocks
from tnt_notebook.parallel.step.partial_optimizer import finalized_here, seen_as_a_whole
from tnt_notebook.plan.mesh import DATA, STAGE

#: By id of a weight, the positions in the pipeline that have it.
Positions = Mapping[int, tuple[int, ...]]

#: Of weights: the positions that have them, and the axes over which gradients are added up.
_Key = tuple[tuple[int, ...], tuple[str, ...]]

#: Of an exchange of gradients, at least.
_CHANNELS_OF_GROUP = 64
#: Parts of the channels of gradients: for sums within a replica; for optimizers of a step.
_SUMS, _OPTIMIZERS = 8, 4


class Weights:
    """The weights of a model, and what ranks have of them. Made on all ranks at once.

    Args:
        layouts: of the weights that are cut, by id.
        positions: that have a weight, where the model is cut into stages.
        before: whose blocks stay where they are.

    Attributes:
        blocks: of the weights that are cut.
        replicas: the ranks that have the same place in each replica.
        owners: of variables that one rank trains for all, by id, its place among the replicas.
        is_whole: whether each rank has all.
        stay_apart: whether the model is never gathered, unless that is asked for.
        in_blocks: whether ranks with the same samples divide layers, also where they do not train.
        divided: whether they do in a step of the model's own, without stages.
        exchange: what ranks do with gradients.
    """

    def __init__(
        self,
        exchange: Exchange,
        model: keras.Model,
        ranks: MeshRanks,
        layouts: Mapping[int, WeightLayout] = {},
        positions: Positions | None = None,
        before: Weights | None = None,
    ) -> None:
        self._model, self._ranks, self._positions = model, ranks, positions
        self.replicas, self._in_exchange = ranks.group([DATA]), exchange
        self.in_blocks = ranks.mesh.is_divided
        self.divided = self.in_blocks and positions is None
        self.blocks: WeightBlocks = WeightBlocks(
            model, layouts, ranks, None if before is None else before.blocks
        )
        self._check_optimizer()
        has_owners = exchange.has_owners and ranks.over.size > 1
        self.owners = self._find_owners() if has_owners else {}
        self.is_whole = positions is None and not self.in_blocks and not has_owners
        self.stay_apart = not self.is_whole and any(map(is_lazy, model.variables))
        # Then rank 0 alone may have all, where that is asked for.
        self._never_whole = self.stay_apart and self.divided and not has_owners
        self._groups = self._make_groups()
        self.exchange = exchange
        if positions is not None or self.in_blocks:
            self.exchange = OverGroups(
                exchange, self._each_group, self.replicas, self._of_optimizer, self.divided
            )
        self._holding: Holding | None = None
        if positions is not None or has_owners:
            self._holding = Holding(ranks.over, self._shared_out, self.stay_apart)

    def _check_optimizer(self) -> None:
        if self._positions is None or (optimizer := self.blocks.looking_at_whole) is None:
            return
        raise ModelError(
            f"The optimizer {type(optimizer).__name__} may look at whole weights, and in "
            f"stages on this mesh {self.blocks.cut_variables[0].path} is cut. Take Adam or "
            "another that treats each number by itself, a mesh without stages, or one whose "
            "axes cut space (depth, height, width) and no weights."
        )

    # Who has what ---------------------------------------------------------------------------------

    def part(self) -> None:
        """Leaves to each rank what it trains. Cheap if it is so already. Local, but where blocks
        that were built lazily have no values yet."""
        if self.is_whole:
            return
        if self.stay_apart and self.divided:
            self.blocks.create()
        if self._holding is not None:
            self._holding.part()
        self.blocks.part((lambda _: True) if self._holding is None else is_here)

    def gather(self, ranks: Iterable[int] | None = None) -> None:
        """Makes the model whole on some ranks; default: on all, unless it stays apart. One in
        blocks that stays apart can be made whole on rank 0 alone. Collective."""
        if self.is_whole:
            return
        if ranks is not None or not self.stay_apart:
            self.join_blocks()
        elif self.divided:
            self.part()  # also where it has been gathered
            self.blocks.set_aside()
        if self._holding is not None:
            self._holding.gather(ranks)

    def join_blocks(self) -> None:
        """Makes whole what ranks have blocks of; of a model that is never whole, on rank 0.
        Collective."""
        if self._never_whole:
            self.blocks.join_on_first()
        else:
            self.blocks.join()

    def set_blocks_aside(self) -> Callable[[keras.Variable, np.ndarray], None] | None:
        """Of a model that is never whole, what gives a variable that is absent then its value.
        Collective."""
        if not self._never_whole:
            return None
        self.gather()
        return self.blocks.put

    def holders(self) -> list[tuple[keras.Variable, list[int]]]:
        """Variables that are whole on some ranks alone, where blocks are joined, with these."""
        if self._holding is not None:
            return self._shared_out()
        return [(v, [0]) for v in self.blocks.cut_variables] if self.stay_apart else []

    def check_identical(self, when: str) -> None:
        """Raises where ranks have different values of what they share. Collective."""
        self.blocks.check_identical(state_of(self._model), when)

    @contextlib.contextmanager
    def gathered_when_used(self, gather: Callable[[], None]) -> Iterator[None]:
        """Inside, ``gather`` is called before the first use of what is not here, or not whole. For
        one rank, where others answer."""
        with self.blocks.shown_whole():
            if self.is_whole:
                yield
                return
            with materialized_when_used(state_of(self._model), gather):
                yield

    def finalized(self) -> contextlib.AbstractContextManager[None]:
        """Around ``fit``, which at its end puts moving averages into weights."""
        return contextlib.nullcontext() if self.is_whole else finalized_here(self._bring_averages)

    def _bring_averages(self, optimizer: keras.optimizers.Optimizer) -> None:
        for variable in trained_by(optimizer) if optimizer.use_ema else []:
            if id(variable) in self.owners and is_here(variable):
                agreement.broadcast(self.replicas, variable, self.owners[id(variable)])

    def _find_owners(self) -> dict[int, int]:
        trained = [trained_by(optimizer) for optimizer in optimizers_of(self._model)]
        if self._positions is not None:  # each stage shares its own out
            at, own = self._positions, trained
            stages = sorted({key for key in at.values() if len(key) == 1})
            trained = [[v for v in some if at.get(id(v)) == key] for some in own for key in stages]
        return self._in_exchange.owners(list(filter(None, trained)), self.replicas.size)

    def _shared_out(self) -> list[tuple[keras.Variable, list[int]]]:
        """Each variable of the optimizers, and in stages of the model, with the ranks that work
        with it."""
        model, mesh = self._model, self._ranks.mesh
        places = [mesh.place(rank) for rank in range(mesh.size)]
        result: list[tuple[keras.Variable, list[int]]] = []

        def ranks_of(about: keras.Variable | None, owner: int | None) -> list[int]:
            at = None
            if about is not None and self._positions is not None:
                at = self._positions.get(id(about))
            return [
                rank
                for rank, place in enumerate(places)
                if (at is None or place[STAGE] in at) and owner in (None, place[DATA])
            ]

        if self._positions is not None:
            known = (v for v in model.variables if id(v) in self._positions)
            result += [(v, ranks_of(v, None)) for v in known]
        for optimizer in optimizers_of(model):
            trained = trained_by(optimizer)
            for variable in optimizer.variables:
                about = slot_of(variable, trained)
                result.append((variable, ranks_of(about, self.owners.get(id(about)))))
        return result

    # A step is traced -----------------------------------------------------------------------------

    def applying(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """What stands for an optimizer's ``apply``, and is given the gradients that are here: it
        clips them by the norm of all, and leaves a step out if any gradient of any rank is not
        finite."""
        if self.is_whole:
            return apply

        def apply_to_blocks(optimizer: Any, gradients: Any, variables: Any) -> Any:
            given = [v for g, v in zip(gradients, variables, strict=True) if g is not None]
            equal = self._in_exchange.keeps_ranks_equal
            others = [name for name in self._ranks.mesh.names if name != DATA]
            over = self._ranks.over if equal else self._ranks.group(others)
            with (
                seen_as_a_whole(over, optimizer, given, self._counts),
                self.blocks.norms_of_whole(given),
            ):
                return apply(optimizer, gradients, variables)

        def apply_to_whole(optimizer: Any, gradients: Any, variables: Any) -> Any:
            with self.blocks.seen_whole():
                return apply(optimizer, self.whole(gradients, variables), variables)

        return apply_to_blocks if self.blocks.looking_at_whole is None else apply_to_whole

    def _counts(self, variable: keras.Variable) -> bool:
        """Whether it is for this rank to speak for a variable that several may have."""
        place = self._ranks.place
        if self._positions is not None and self._positions[id(variable)][0] != place[STAGE]:
            return False
        beside = {*self.blocks.layout_of(variable).axes.values(), STAGE}
        owner = self.owners.get(id(variable))
        if owner is not None or not self._in_exchange.keeps_ranks_equal:
            beside.add(DATA)
        return owner in (None, place[DATA]) and self._ranks.is_first_beside(beside)

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """Inside, weights are what this rank has of them."""
        return self.blocks.at_work()

    def whole(self, gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> list[Any]:
        """Gradients of blocks, as a step's own code sees them."""
        return list(map(self.blocks.whole_of, variables, gradients))

    def block(self, gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> list[Any]:
        """Those of blocks, of what such code made of them."""
        return list(map(self.blocks.block_of, variables, gradients))

    def summed(self, gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> list[Any]:
        """Gradients of a replica, added up over the axes along which its ranks use the same of a
        weight for different parts of the work."""
        chosen: dict[tuple[str, ...], list[int]] = {}
        for i, variable in enumerate(variables):
            summed = self.blocks.layout_of(variable).summed
            axes = tuple(name for name in self._ranks.mesh.names if name in summed)
            chosen.setdefault(axes, []).append(i)
        result = list(gradients)
        # Ranks of one line make the same groups, in the same order.
        for number, axes in enumerate(sorted(filter(None, chosen))):
            with ops.channels(self._part(len(self._groups) + _OPTIMIZERS + number)):
                of_some = [gradients[i] for i in chosen[axes]], [variables[i] for i in chosen[axes]]
                for i, gradient in zip(
                    chosen[axes], _summed(self._ranks.group(axes), *of_some), strict=True
                ):
                    result[i] = gradient
        return result

    def _part(self, number: int) -> channels.Range:
        """One of the parts of the channels of gradients: ranks outside of the group that uses it do
        not count its channels."""
        sums = max(_SUMS, 2 ** len(self._ranks.mesh.inner)) if self.divided else 0
        return channels.GRADIENTS.part(number, len(self._groups) + _OPTIMIZERS + sums)

    def _of_optimizer(self, number: int) -> contextlib.AbstractContextManager[None]:
        return ops.channels(self._part(len(self._groups) + number))

    def _each_group(
        self, variables: Sequence[keras.Variable]
    ) -> Iterator[tuple[Communicator, list[int], bool]]:
        """The ranks that have the same weights: replicas, and stages that share. Of each such group
        its variables among these, by place, and whether several stages have them. What is exchanged
        before the next one is asked for has channels of its own."""
        for number, (key, group) in enumerate(self._groups.items()):
            chosen = [i for i, v in enumerate(variables) if self._key(v) == key]
            if chosen:
                with ops.channels(self._part(number)):
                    yield group, chosen, len(key[0]) > 1

    def _key(self, variable: keras.Variable) -> _Key:
        if self._positions is None:  # what ranks of a replica add up is a sum already
            return (), (DATA,)
        summed = self.blocks.layout_of(variable).summed | {DATA}
        axes = tuple(name for name in self._ranks.mesh.names if name in summed)
        return self._positions[id(variable)], axes

    def _make_groups(self) -> dict[_Key, Communicator]:
        """For each set of positions that share weights, and of axes over which gradients of these
        are added up, the ranks that do so. Collective."""
        positions, ranks = self._positions, self._ranks
        if positions is None:
            return {((), (DATA,)): self.replicas}
        held = [v for v in self._model.trainable_variables if id(v) in positions]
        keys = sorted({self._key(variable) for variable in held})
        if (len(keys) + _OPTIMIZERS) * _CHANNELS_OF_GROUP > channels.GRADIENTS.count:
            raise ModelError("Too many sets of stages share weights. Ask for fewer stages.")
        groups: dict[_Key, Communicator] = {}
        for at, axes in keys:
            if len(at) == 1:
                groups[at, axes] = ranks.group(axes)
                continue
            others = {n: there for n, there in ranks.place.items() if n not in {*axes, STAGE}}
            line = 1 + ranks.mesh.rank(others) if ranks.place[STAGE] in at else 0
            groups[at, axes] = ranks.over.split(line)
        return groups


def _summed(
    over: Communicator, gradients: Sequence[Any], variables: Sequence[keras.Variable]
) -> list[Any]:
    """The sums over ranks, for what all of them do alike: steps may differentiate them again."""
    step = ExchangeStep(over, tf.constant(1.0, tf.float64), ExchangeState([]))
    if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        return Allreduce().gradients(step, gradients, variables)

    @tf.custom_gradient
    def summed(*own: tf.Tensor) -> Any:
        return Allreduce().gradients(step, own, variables), lambda *upstream: upstream

    return list(summed(*map(tf.convert_to_tensor, gradients)))
