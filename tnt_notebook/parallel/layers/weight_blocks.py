"""Weights that are cut: each rank of a mesh has its block while the model trains, and the whole for
everybody else. What an optimizer keeps of a weight is cut as the weight is.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import Communicator, channels, ops
from tnt_notebook.keras.blocks import Block, Shown
from tnt_notebook.keras.initial import Index
from tnt_notebook.keras.lazy_variables import create, waits_for_value
from tnt_notebook.keras.losses import weight_losses_replaced
from tnt_notebook.keras.optimizers import clip_norms_replaced, with_inner
from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.consistency.holders import slot_of
from tnt_notebook.parallel.consistency.model_state import optimizers_of
from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.moves import total
from tnt_notebook.parallel.layers.program import WeightLayout
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.whole import Whole, WholeVariable, block_of, bringing
from tnt_notebook.plan.mesh import STAGE, Mesh

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
        before: whose blocks stay where they are.

    Attributes:
        brought: what steps bring together, and how many bytes each is.
    """

    def __init__(
        self,
        model: keras.Model,
        layouts: Mapping[int, WeightLayout],
        ranks: MeshRanks,
        before: WeightBlocks | None = None,
    ) -> None:
        self._model, self._layouts, self._ranks = model, layouts, ranks
        self._blocks: dict[int, Block] = {} if before is None else before._blocks
        self._in_blocks = False
        self._shown = Shown([])
        self.brought: dict[str, int] = {}
        # Of variables that are no weights, which stay alive so that no other gets the id.
        self._others: dict[int, tuple[keras.Variable, WeightLayout]] = {}

    def layout_of(self, variable: keras.Variable) -> WeightLayout:
        """Of a weight, or of what an optimizer keeps of one."""
        own = self._layouts.get(id(variable)) if self._layouts else _WHOLE
        if own is not None:
            return own
        if id(variable) not in self._others:
            about = slot_of(variable, self._model.trainable_variables)
            alike = about is not None and tuple(about.shape) == tuple(variable.shape)
            layout = self._layouts.get(id(about), _WHOLE) if alike else _WHOLE
            self._others[id(variable)] = variable, layout
        return self._others[id(variable)][1]

    @property
    def _variables(self) -> list[keras.Variable]:
        """All of the model and of what optimizers keep, in the same order on all ranks."""
        own = {id(v): v for v in self._model.variables}
        for optimizer in optimizers_of(self._model):
            own |= {id(v): v for v in optimizer.variables}
        return list(own.values())

    @property
    def _cut(self) -> list[tuple[Block, WeightLayout]]:
        """All variables that are cut, in the same order on all ranks."""
        result = []
        for variable in self._variables:
            if (layout := self.layout_of(variable)).splits:
                if id(variable) not in self._blocks:
                    index = index_of(variable.shape, layout, self._ranks)
                    self._blocks[id(variable)] = Block(variable, index)
                result.append((self._blocks[id(variable)], layout))
        return result

    @property
    def cut_variables(self) -> list[keras.Variable]:
        """All variables that are cut."""
        return [block.variable for block, _ in self._cut]

    @property
    def looking_at_whole(self) -> keras.optimizers.Optimizer | None:
        """The optimizer that may look at more than a number at a time of a weight that is cut;
        None: there is none."""
        if not any(self.layout_of(v).splits for v in self._model.trainable_variables):
            return None
        every = [one for own in optimizers_of(self._model) for one in with_inner(own)]
        return next((one for one in every if not _is_elementwise(one)), None)

    def part(self, has: Callable[[keras.Variable], bool] = lambda variable: True) -> None:
        """Leaves to each rank its blocks, of what it has. Local; cheap if it is so already."""
        if not self._in_blocks:
            self._in_blocks = True
            for block, _ in self._cut:
                if has(block.variable) or block.is_aside:
                    block.cut()

    def join(self) -> None:
        """Makes whole what ranks have blocks of. Collective; cheap if it is so already."""
        if self._in_blocks:
            for block, layout in self._cut:
                block.join(functools.partial(self._joined, layout))
            self._in_blocks = False

    def create(self) -> None:
        """Gives values to what was built lazily and has none yet: of what is cut, to this rank's
        block alone. Collective; what ranks share is the same on all of them then."""
        if self._in_blocks:
            return
        cut = {id(block.variable) for block, _ in self._cut}
        absent = [v for v in self._variables if waits_for_value(v)]
        if not absent:
            return
        for variable in absent:
            if id(variable) not in cut:
                create(variable)
        self.part()
        self._each_group(absent, agreement.share_state)

    def put(self, variable: keras.Variable, whole: np.ndarray) -> None:
        """Gives this rank's block of a variable that is set aside its part of a value. Local."""
        self._blocks[id(variable)].put(whole)

    def set_aside(self) -> None:
        """Keeps the blocks, and leaves the model without what is cut. Local."""
        if self._in_blocks:
            for block, _ in self._cut:
                block.set_aside()
            self._in_blocks = False

    @contextlib.contextmanager
    def shown_whole(self) -> Iterator[None]:
        """Inside, variables that are cut have the shape of the whole, and are absent until they are
        joined. Local."""
        cut = [block for block in self._blocks.values() if block.is_cut]
        for block in cut:
            block.set_aside()
        try:
            yield
        finally:
            for block in cut:
                if block.is_aside:  # and nobody has joined it
                    block.cut()

    def join_on_first(self) -> None:
        """Makes the model whole on rank 0 alone: others have no more than a block more meanwhile.
        Collective."""
        self.part()
        over, mesh = self._ranks.over, self._ranks.mesh
        for block, layout in self._cut:
            line = mesh.line(over.rank, layout.axes.values())
            if 0 in line:
                group = self._ranks.group(layout.axes.values())
                whole = _gathered_on_first(block, layout, group, self._ranks, line)
                if whole is not None and over.rank == 0:
                    block.join(functools.partial(_itself, whole))
            block.set_aside()
        self._in_blocks = False

    def check_identical(self, variables: Sequence[keras.Variable], when: str) -> None:
        """Compares what ranks have of the same: whole variables of all, blocks of those that have
        the same block. Collective."""
        self._each_group(variables, lambda over, own: agreement.check_identical(over, own, when))

    def _each_group(
        self,
        variables: Sequence[keras.Variable],
        do: Callable[[Communicator, Sequence[keras.Variable]], None],
    ) -> None:
        """Does something on the ranks that have the same of variables: the whole, or a block."""
        ranks, by_axes = self._ranks, dict[frozenset[str], list[keras.Variable]]()
        for variable in variables:
            cutting = self.layout_of(variable).axes.values() if self._in_blocks else ()
            axes = frozenset(cutting)
            by_axes.setdefault(axes, []).append(variable)
        for axes in sorted(by_axes, key=sorted):
            do(ranks.group(set(ranks.mesh.names) - axes), by_axes[axes])

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

        def square_of_whole(number: int, square: tf.Tensor) -> tf.Tensor:
            label = f"allreduce of the norm of {cut[number].path}"
            group = self._ranks.group(set(self.layout_of(cut[number]).axes.values()))
            with ops.channels(channels.NORMS.only(number)):  # other stages have other weights
                (whole,) = ops.allreduce([square], label=label, over=group)
            return whole

        squares = {id(v): functools.partial(square_of_whole, n) for n, v in enumerate(cut)}
        return clip_norms_replaced(squares, variables) if cut else contextlib.nullcontext()

    @contextlib.contextmanager
    def seen_whole(self) -> Iterator[None]:
        """Inside, weights are whole for those who look at them: see :mod:`.whole`."""
        before, self._shown = self._shown, Shown([*self._wholes()])
        try:
            with self._shown.turned(True):
                yield
        finally:
            self._shown = before

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """Inside, they are the blocks that this rank has: for layers and optimizers."""
        return self._shown.turned(False)

    def whole_of(self, variable: keras.Variable, block: Any) -> Any:
        """Of the gradient of a block that of the whole, for those who look at it."""
        layout = self.layout_of(variable)
        if not layout.splits or block is None:
            return block
        shape, index, bring = self._bringing(variable, f"the gradient of {variable.path}")
        if not isinstance(block, tf.IndexedSlices) or 0 in layout.axes:
            return Whole(block, shape, index, bring)
        values = Whole(block.values, tf.TensorShape([None, *shape[1:]]), index, bring)
        return tf.IndexedSlices(values, block.indices, tf.constant(shape.as_list()))

    def block_of(self, variable: keras.Variable, whole: Any) -> Any:
        """This rank's block of such a gradient, or of what was made of it."""
        layout = self.layout_of(variable)
        if not layout.splits:
            return whole
        index = self._blocks[id(variable)].index
        if not isinstance(whole, tf.IndexedSlices) or 0 in layout.axes:
            return block_of(whole, index)
        shape = tf.constant(variable.shape.as_list())
        return tf.IndexedSlices(block_of(whole.values, index), whole.indices, shape)

    def _wholes(self) -> Iterator[tuple[keras.Variable, Any, tuple[int, ...]]]:
        """Of weights that are cut, or for whose gradients ranks add up theirs."""
        for variable in self._variables:
            layout = self.layout_of(variable)
            count = self._ranks.mesh.along_all(layout.summed) if variable.trainable else 1
            if layout.splits or count > 1:
                shape, index, bring = self._bringing(variable, variable.path, count)
                yield variable, WholeVariable(variable.value, shape, index, bring), tuple(shape)

    def _bringing(
        self, variable: keras.Variable, label: str, count: int = 1
    ) -> tuple[tf.TensorShape, Index, Callable[[tf.Tensor], tf.Tensor]]:
        """The shape of the whole, what cuts the block out of it, and what makes it of a block."""
        layout, block = self.layout_of(variable), self._blocks.get(id(variable))
        shape = variable.shape if block is None else block.whole_shape
        index = () if block is None else block.index
        bring = bringing(layout, index, self._ranks, label, count)

        def brought(own: tf.Tensor) -> tf.Tensor:
            if layout.splits:
                self.brought[label] = math.prod(map(int, shape)) * own.dtype.size
            return bring(own)

        return tf.TensorShape(shape), index, brought

    def regularized_as_a_whole(self) -> contextlib.AbstractContextManager[None]:
        """Inside, regularizers count each number of a weight once, however many ranks have it."""

        def loss_of(regularizer: Callable[[Any], Any], variable: keras.Variable) -> Any:
            layout = self.layout_of(variable)
            cutting = set(layout.axes.values())
            once = self._ranks.mesh.along_all(layout.summed)
            with self.at_work():
                loss = regularizer(_with_gradient_over(variable, once))
            if not cutting:
                return loss
            return total(loss, self._ranks.group(cutting), f"regularization of {variable.path}")

        return weight_losses_replaced(loss_of)


def _is_elementwise(optimizer: keras.optimizers.Optimizer) -> bool:
    name = type(optimizer).__name__
    return name in _ELEMENTWISE and getattr(keras.optimizers, name, None) is type(optimizer)


def index_of(shape: Sequence[int], layout: WeightLayout, ranks: MeshRanks) -> tuple[slice, ...]:
    """What cuts this rank's block out of a weight."""
    return index_at(shape, layout, ranks.mesh, ranks.place)


def index_at(
    shape: Sequence[int], layout: WeightLayout, mesh: Mesh, place: Mapping[str, int]
) -> tuple[slice, ...]:
    """The same of the rank that has a place in the mesh."""
    axes = layout.axes
    return tuple(
        slice(*blocks(size, mesh.along(axes[dim]))[place[axes[dim]]])
        if dim in axes
        else slice(None)
        for dim, size in enumerate(map(int, shape))
    )


def _itself(whole: np.ndarray, block: np.ndarray) -> np.ndarray:
    return whole


def _gathered_on_first(
    block: Block, layout: WeightLayout, group: Communicator, ranks: MeshRanks, line: Sequence[int]
) -> np.ndarray | None:
    """A weight of which each rank of a group has a block, on its rank 0; None elsewhere. One block
    after the other is sent, so that nobody else has them all."""
    whole = np.empty(block.whole_shape, block.value.dtype) if group.rank == 0 else None
    for root, rank in enumerate(line):
        index = index_at(block.whole_shape, layout, ranks.mesh, ranks.mesh.place(rank))
        shape = [len(range(*i.indices(n))) for i, n in zip(index, block.whole_shape, strict=True)]
        own = block.value if group.rank == root else np.empty(shape, block.value.dtype)
        # As bytes: nothing is added up here, and bool travels too.
        moved = group.broadcast(np.ascontiguousarray(own).reshape(-1).view(np.uint8), root)
        if whole is not None:
            whole[index] = moved.view(own.dtype).reshape(shape)
    return whole


def _with_gradient_over(variable: keras.Variable, count: int) -> Any:
    """A weight whose gradient is divided: so many ranks compute the same one, which is summed."""
    if count == 1:
        return variable

    @tf.custom_gradient
    def same(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return tf.identity(x), lambda dy: dy / tf.cast(count, dy.dtype)

    return same(tf.convert_to_tensor(variable.value))
