"""The weights of a model on a mesh without stages: gradients are added up over the axes along which
ranks of a replica use the same of a weight for different parts of the work, and exchanged between
replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, channels, ops
from tnt_notebook.keras.absent import is_lazy
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.parallel.exchange.kept import Kept
from tnt_notebook.parallel.layers.program import Program
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.weight_blocks import WeightBlocks
from tnt_notebook.parallel.parted import seen_as_a_whole
from tnt_notebook.parallel.pipeline.groups import OverGroups
from tnt_notebook.plan.mesh import DATA


class MeshWeights:
    """The weights of a model whose layers are divided. Made on all ranks at once.

    Args:
        before: whose blocks stay where they are.

    Attributes:
        blocks: of the weights that are cut.
        stay_apart: whether the model stays in blocks after training: with ``tnt.lazy()``.
    """

    def __init__(
        self,
        model: keras.Model,
        program: Program,
        ranks: MeshRanks,
        exchange: Exchange,
        before: MeshWeights | None = None,
    ) -> None:
        self._model, self._ranks = model, ranks
        kept = None if before is None else before.blocks
        self.blocks: WeightBlocks = WeightBlocks(model, program.weights, ranks, kept)
        self.stay_apart = any(map(is_lazy, model.variables))
        self.exchange = OverGroups(exchange, self.groups, self.seen_as_a_whole, scaled=True)

    def part(self) -> None:
        """Leaves to each rank its blocks. Cheap if it is so already. Local, but where variables
        that were built lazily have no values yet."""
        if self.stay_apart:
            self.blocks.create()
        self.blocks.part()

    def gather(self, ranks: Iterable[int] | None = None) -> None:
        """Makes the model whole: on all ranks, or, of one that stays apart, on rank 0 if that is
        said. Collective."""
        if not self.stay_apart:
            self.blocks.join()
        elif ranks is None:
            self.part()  # also where it has been gathered
            self.blocks.set_aside()
        else:
            assert [*ranks] == [0]
            self.blocks.join_on_first()

    def holders(self) -> list[tuple[keras.Variable, list[int]]]:
        """Variables that are whole on some ranks alone, where they are gathered, with these."""
        return [(v, [0]) for v in self.blocks.cut_variables] if self.stay_apart else []

    def groups(
        self, variables: Sequence[keras.Variable]
    ) -> Iterator[tuple[Communicator, list[int], bool]]:
        """The ranks that have the same of the variables: the replicas."""
        with ops.channels(channels.GRADIENTS.part(0, 8)):
            yield self._ranks.group([DATA]), [*range(len(variables))], False

    def applying(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """An optimizer's ``apply`` that is given the gradients of blocks."""
        if self.blocks.looking_at_whole is None:
            return apply

        def applied(optimizer: Any, gradients: list[Any], variables: list[keras.Variable]) -> Any:
            with self.blocks.seen_whole():
                return apply(optimizer, self.whole(gradients, variables), variables)

        return applied

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        return self.blocks.at_work()

    def whole(self, gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> list[Any]:
        return list(map(self.blocks.whole_of, variables, gradients))

    def block(self, gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> list[Any]:
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
        order = sorted(filter(None, chosen))
        for number, axes in enumerate(order):
            with ops.channels(channels.GRADIENTS.part(1 + number, 1 + max(len(order), 7))):
                of_some = [gradients[i] for i in chosen[axes]], [variables[i] for i in chosen[axes]]
                for i, gradient in zip(
                    chosen[axes], _summed(self._ranks.group(axes), *of_some), strict=True
                ):
                    result[i] = gradient
        return result

    @contextlib.contextmanager
    def seen_as_a_whole(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Inside, an optimizer that is given the gradients of blocks clips them by the norm of the
        whole, and leaves a step out if any gradient of any rank is not finite."""
        over, model = self._ranks.over, self._model
        if self.blocks.looking_at_whole is not None:
            yield
            return
        with (
            seen_as_a_whole(over, model.optimizer, variables, self.blocks.counts),
            self.blocks.norms_of_whole(variables),
        ):
            yield


def _summed(
    over: Communicator, gradients: Sequence[Any], variables: Sequence[keras.Variable]
) -> list[Any]:
    """The sums over ranks, for what all of them do alike: steps may differentiate them again."""
    step = ExchangeStep(over, tf.constant(1.0, tf.float64), Kept([]))
    if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        return Allreduce().gradients(step, gradients, variables)

    @tf.custom_gradient
    def summed(*own: tf.Tensor) -> Any:
        return Allreduce().gradients(step, own, variables), lambda *upstream: upstream

    return list(summed(*map(tf.convert_to_tensor, gradients)))
