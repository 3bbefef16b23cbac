"""Weights that are cut: each rank of a mesh has its block while the model trains, and the whole for
everybody else. What an optimizer keeps of a weight is cut as the weight is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.blocks import Block
from tnt_notebook.keras.losses import weight_losses_replaced
from tnt_notebook.keras.optimizers import clip_norms_replaced, with_inner
from tnt_notebook.parallel import agreement
from tnt_notebook.parallel.holders import slot_of
from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.moves import total
from tnt_notebook.parallel.layers.program import WeightLayout
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.model_state import optimizers_of
from tnt_notebook.plan.mesh import STAGE

#: Optimizers that treat each number of a weight by itself; others need whole weights.
_ELEMENTWISE = frozenset((
    "SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion",
    "LossScaleOptimizer", "MultiOptimizer",
))  # fmt: skip

_WHOLE = WeightLayout()


class WeightBlocks:
    """The weights of a model as blocks.

    Args:
        layouts: of its weights, by id; those of what optimizers keep follow.

    Raises:
        ModelError: an optimizer needs whole weights, and some are cut.
    """

    def __init__(
        self, model: keras.Model, layouts: Mapping[int, WeightLayout], ranks: MeshRanks
    ) -> None:
        self._model, self._layouts, self._ranks = model, layouts, ranks
        self._refuse_optimizers()
        self._in_blocks = False

    def layout_of(self, variable: keras.Variable) -> WeightLayout:
        """Of a weight, or of what an optimizer keeps of one."""
        own = self._layouts.get(id(variable))
        if own is not None:
            return own
        about = slot_of(variable, self._model.trainable_variables)
        if about is None or len(about.shape) != len(variable.shape):
            return _WHOLE
        return self._layouts.get(id(about), _WHOLE)

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

    def part(self, has: Callable[[keras.Variable], bool] = lambda variable: True) -> None:
        """Leaves to each rank its blocks, of what it has. Local; cheap if it is so already."""
        if not self._in_blocks:
            self._in_blocks = True
            for block, _ in self._cut:
                if has(block.variable):
                    block.cut()

    def join(self) -> None:
        """Makes whole what ranks have blocks of. Collective; cheap if it is so already."""
        if self._in_blocks:
            for block, layout in self._cut:
                block.join(functools.partial(self._joined, layout))
            self._in_blocks = False

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

    def counts(self, variable: keras.Variable) -> bool:
        """Whether it is for this rank to speak for its block: of those that have the same, apart
        from other stages, it is the first."""
        return self._ranks.is_first_beside({*self.layout_of(variable).axes.values(), STAGE})

    def norms_of_whole(
        self, variables: Sequence[keras.Variable]
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, an optimizer clips the gradient of a block by the norm of the whole."""
        cut = [v for v in variables if self.layout_of(v).splits]
        channel_of = {id(v): channels.NORMS.only(number) for number, v in enumerate(cut)}

        def square_of_whole(square: tf.Tensor, variable: keras.Variable) -> tf.Tensor:
            if id(variable) not in channel_of:
                return square
            label = f"allreduce of the norm of {variable.path}"
            group = self._ranks.group(set(self.layout_of(variable).axes.values()))
            with ops.channels(channel_of[id(variable)]):  # other stages have other weights
                (whole,) = ops.allreduce([square], label=label, over=group)
            return whole

        return clip_norms_replaced(square_of_whole, variables)

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
