"""The weights of a model on a mesh: in blocks while it trains, and whole for everybody else.

Gradients of a weight are added up over the replicas, and over the axes along which ranks use the
same of it for different parts of the work. What an optimizer keeps of a weight is cut as the weight
is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import Communicator, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.blocks import Block
from tnt_notebook.keras.losses import weight_losses_replaced
from tnt_notebook.keras.optimizers import clip_norms_replaced, with_inner
from tnt_notebook.parallel import agreement
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.holders import slot_of
from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.moves import total
from tnt_notebook.parallel.layers.program import Program, WeightLayout
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.model_state import optimizers_of
from tnt_notebook.parallel.parted import seen_as_a_whole
from tnt_notebook.parallel.pipeline.groups import OverGroups
from tnt_notebook.plan.mesh import DATA

#: Optimizers that treat each number of a weight by itself; others need whole weights.
_ELEMENTWISE = frozenset((
    "SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion",
    "LossScaleOptimizer", "MultiOptimizer",
))  # fmt: skip

_WHOLE = WeightLayout()


class MeshWeights:
    """The weights of a model whose layers are divided. Made on all ranks at once."""

    #: Whether the model stays in blocks after training: with ``tnt.lazy()``; as yet it does not.
    stay_apart = False

    def __init__(
        self, model: keras.Model, program: Program, ranks: MeshRanks, exchange: Exchange
    ) -> None:
        self._model, self._program, self._ranks = model, program, ranks
        self._refuse_optimizers()
        self.exchange = OverGroups(exchange, self.groups, self.seen_as_a_whole, scaled=True)
        self._in_blocks = False

    # Layouts ----------------------------------------------------------------------------------

    def layout_of(self, variable: keras.Variable) -> WeightLayout:
        """Of a weight, or of what an optimizer keeps of one."""
        own = self._program.weights.get(id(variable))
        if own is not None:
            return own
        about = slot_of(variable, self._model.trainable_variables)
        if about is None or len(about.shape) != len(variable.shape):
            return _WHOLE
        return self._program.weights.get(id(about), _WHOLE)

    @functools.cached_property
    def _cut(self) -> list[tuple[Block, WeightLayout]]:
        """All variables that are cut, in the same order on all ranks."""
        own = {id(v): v for v in self._model.variables}
        for optimizer in optimizers_of(self._model):
            own |= {id(v): v for v in optimizer.variables}
        layouts = ((variable, self.layout_of(variable)) for variable in own.values())
        return [(Block(v, index_of(v.shape, w, self._ranks)), w) for v, w in layouts if w.splits]

    def _refuse_optimizers(self) -> None:
        cut = [v.path for v in self._model.trainable_variables if self.layout_of(v).splits]
        for optimizer in optimizers_of(self._model) if cut else []:
            for one in with_inner(optimizer):
                known = getattr(keras.optimizers, type(one).__name__, None) is type(one)
                if not known or type(one).__name__ not in _ELEMENTWISE:
                    raise ModelError(
                        f"The optimizer {type(one).__name__} may look at whole weights, and on "
                        f"this mesh {cut[0]} is cut. Take one of "
                        f"{', '.join(sorted(_ELEMENTWISE)[:-2])}, or a mesh whose axes cut space "
                        "(depth, height, width) and no weights."
                    )

    # Blocks and the whole ---------------------------------------------------------------------

    def part(self) -> None:
        """Leaves to each rank its blocks. Local; cheap if it is so already."""
        if not self._in_blocks:
            self._in_blocks = True
            for block, _ in self._cut:
                block.cut()

    def gather(self, ranks: Iterable[int] | None = None) -> None:
        """Makes the model whole on all ranks. Collective."""
        if self._in_blocks:
            for block, layout in self._cut:
                block.join(functools.partial(self._joined, layout))
            self._in_blocks = False

    def holders(self) -> list[tuple[keras.Variable, list[int]]]:
        """Each variable is whole on all ranks where somebody asks for it."""
        return []

    def check_identical(self, variables: Sequence[keras.Variable], when: str) -> None:
        """Compares what ranks have of the same: whole variables of all, blocks of those that have
        the same block. Collective."""
        ranks, by_axes = self._ranks, dict[frozenset[str], list[keras.Variable]]()
        for variable in variables:
            cutting = self.layout_of(variable).axes.values() if self._in_blocks else ()
            axes = frozenset(cutting)
            by_axes.setdefault(axes, []).append(variable)
        for axes in sorted(by_axes, key=sorted):
            group = ranks.group(set(ranks.mesh.names) - axes)
            agreement.check_identical(group, by_axes[axes], when)

    def _joined(self, layout: WeightLayout, block: np.ndarray) -> np.ndarray:
        for dim, axis in layout.splits:
            group = self._ranks.group([axis])
            rows = np.ascontiguousarray(np.moveaxis(block, dim, 0))
            block = np.moveaxis(group.allgather(rows), 0, dim)
        return block

    # Gradients --------------------------------------------------------------------------------

    def groups(
        self, variables: Sequence[keras.Variable]
    ) -> Iterator[tuple[Communicator, list[int], bool]]:
        """The ranks over which gradients are added up, with the places of the variables."""
        chosen: dict[tuple[str, ...], list[int]] = {}
        names = self._ranks.mesh.names
        for i, variable in enumerate(variables):
            summed = self.layout_of(variable).summed | {DATA}
            chosen.setdefault(tuple(n for n in names if n in summed), []).append(i)
        # Ranks of one line make the same groups, in the same order.
        order = sorted(chosen)
        for number, axes in enumerate(order):
            with ops.channels(channels.GRADIENTS.part(number, max(len(order), 8))):
                yield self._ranks.group(axes), chosen[axes], False

    @contextlib.contextmanager
    def seen_as_a_whole(self, variables: Sequence[keras.Variable]) -> Iterator[None]:
        """Inside, an optimizer that is given the gradients of blocks clips them by the norm of the
        whole, and leaves a step out if any gradient of any rank is not finite."""
        over, model = self._ranks.over, self._model
        with (
            seen_as_a_whole(over, model.optimizer, variables, self._counts),
            clip_norms_replaced(self._square_of_whole, variables),
        ):
            yield

    def _counts(self, variable: keras.Variable) -> bool:
        """Whether it is for this rank to speak for its block: it is the first that has it."""
        return self._ranks.is_first_beside(self.layout_of(variable).axes.values())

    def _square_of_whole(self, square: tf.Tensor, variable: keras.Variable) -> tf.Tensor:
        """The squared norm of the gradient of a weight, of those of the blocks."""
        axes = set(self.layout_of(variable).axes.values())
        if not axes:
            return square
        (whole,) = ops.allreduce(
            [square], label=f"allreduce of the norm of {variable.path}",
            over=self._ranks.group(axes),
        )  # fmt: skip
        return whole

    def regularized_as_a_whole(self) -> contextlib.AbstractContextManager[None]:
        """Inside, regularizers count each number of a weight once, however many ranks have it."""

        def loss_of(regularizer: Callable[[Any], Any], variable: keras.Variable) -> Any:
            layout = self.layout_of(variable)
            cutting = set(layout.axes.values())
            once = self._ranks.mesh.along_all(layout.summed)
            loss = regularizer(_with_gradient_over(variable, once))
            if not cutting:
                return loss
            return total(loss, self._ranks.group(cutting), f"regularization of {variable.path}")

        return weight_losses_replaced(loss_of)


def index_of(shape: Sequence[int], layout: WeightLayout, ranks: MeshRanks) -> tuple[slice, ...]:
    """What cuts this rank's block out of a weight."""
    mesh, place, axes = ranks.mesh, ranks.place, layout.axes
    return tuple(
        slice(*blocks(size, mesh.along(axes[dim]))[place[axes[dim]]])
        if dim in axes
        else slice(None)
        for dim, size in enumerate(map(int, shape))
    )


def _with_gradient_over(variable: keras.Variable, count: int) -> Any:
    """A weight whose gradient is divided: so many ranks compute the same one, which is summed."""
    if count == 1:
        return variable

    @tf.custom_gradient
    def same(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return tf.identity(x), lambda dy: dy / tf.cast(count, dy.dtype)

    return same(tf.convert_to_tensor(variable.value))
