"""Losses and metrics of outputs that stay in blocks.

What compile() was given is traced as if this rank's blocks were whole outputs, and gone through
along each axis of the mesh that cuts them, as a step is along its samples
(:mod:`tnt_notebook.parallel.graph.step`)::

    blocks of outputs    labels, weights
         |                     | cut where they meet blocks
         loss, its gradient to blocks; metrics ..... sums over ranks where blocks meet

So a loss of each voxel needs no rank that has all voxels, and any other gets what it looks at.
After it all ranks go on with the same loss, and the same states of metrics, as if they had seen
whole outputs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.graph import mask_of, set_mask
from tnt_notebook.keras.losses import compiled_replaced, logits_of, set_logits
from tnt_notebook.parallel.graph import layouts
from tnt_notebook.parallel.graph.emission import Here
from tnt_notebook.parallel.graph.layouts import SAME, Rows
from tnt_notebook.parallel.graph.step import Together, followed, gathered, written
from tnt_notebook.parallel.layers.layout import Layout
from tnt_notebook.parallel.layers.moves import cut
from tnt_notebook.parallel.layers.ranks import MeshRanks

#: Of tensors, as a function of these: a flat list of tensors, all that it returns.
_Function = Callable[..., list[tf.Tensor]]


@dataclass(frozen=True)
class Output:
    """What this rank has of an output of the model.

    Attributes:
        block: the rows of this rank.
        shape: of the whole; known of dimensions that are cut.
        layout: by which dimensions it is cut.
        whole: gathers it, once.
    """

    block: tf.Tensor
    shape: Sequence[int | None]
    layout: Layout
    whole: Callable[[], tf.Tensor]


class Outputs:
    """The outputs of a call of the model that are in blocks, by id of the block.

    Args:
        told: is told of ops for which ranks get what others have, as a step is.
    """

    def __init__(self, ranks: MeshRanks, told: dict[str, int]) -> None:
        self.ranks, self.told = ranks, told
        self._known: dict[int, Output] = {}

    def add(self, output: Output) -> tf.Tensor:
        """Gives its block, by which it is found again."""
        self._known[id(output.block)] = output
        return output.block

    def whole(self, y_pred: Any) -> Any:
        """The same, gathered."""
        return keras.tree.map_structure(
            lambda leaf: self._known[id(leaf)].whole() if id(leaf) in self._known else leaf, y_pred
        )

    def of(self, leaves: Sequence[Any]) -> list[Output | None]:
        """What is known of outputs; None of those that are whole."""
        return [self._known.get(id(leaf)) for leaf in leaves]


@contextlib.contextmanager
def taken_in_blocks(outputs: Outputs) -> Iterator[None]:
    """Inside, the loss and the metrics of compile() take blocks."""
    with compiled_replaced(functools.partial(_loss, outputs), functools.partial(_count, outputs)):
        yield


def _loss(
    outputs: Outputs, compute: Callable[..., Any], y: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """What the loss of compile() is of whole outputs."""
    call = _call_of(outputs, y, y_pred, sample_weight)
    if call is None:
        return compute(y, y_pred, sample_weight)

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        taken = [tensor for tensor in tensors[: call.count] if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(taken)
            loss = call.run(compute, tensors)
        return [loss, *tape.gradient(loss, taken, unconnected_gradients="zero")]

    traced = call.traced(run)
    # A loss that looks at weights has gradients to these, one without a reduction has one for each
    # of its numbers.
    if traced.graph.trainable_variables or traced.outputs[0].shape.rank != 0:
        return compute(y, outputs.whole(y_pred), sample_weight)
    floating = [i for i in range(call.count) if call.tensors[i].dtype.is_floating]
    gives = [None, *floating]

    @tf.custom_gradient
    def differentiable(*taken: tf.Tensor) -> Any:
        tensors = list(call.tensors)
        for i, tensor in zip(floating, taken, strict=True):
            tensors[i] = tensor
        loss, *gradients = call.together(traced, tensors, gives)

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            return [each * tf.cast(upstream, each.dtype) for each in gradients]

        return loss, gradient

    return differentiable(*(call.tensors[i] for i in floating))


def _count(
    outputs: Outputs, compute: Callable[..., Any], y: Any, y_pred: Any, sample_weight: Any = None
) -> None:
    """Updates the metrics of compile() by whole outputs."""
    call = _call_of(outputs, y, y_pred, sample_weight)
    if call is None:
        compute(y, y_pred, sample_weight)
        return

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        call.run(compute, tensors)
        return []

    call.together(call.traced(run), call.tensors, [])


@dataclass(frozen=True)
class _Call:
    """A call of a loss or of metrics.

    Attributes:
        arguments: labels, outputs and weights, in their structures.
        tensors: outputs, with what Keras keeps beside them, then labels and weights.
        splits: of each of these, by axis, the dimension that is cut.
        sizes: of what each axis cuts.
        count: how many of these are outputs, or beside them.
    """

    outputs: Outputs
    arguments: tuple[Any, Any, Any]
    tensors: list[tf.Tensor]
    splits: list[dict[str, int]]
    sizes: dict[str, int]
    count: int

    def run(self, compute: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        """Calls it on other tensors."""
        y, y_pred, sample_weight = self.arguments
        leaves = keras.tree.flatten(y_pred)
        taken = iter(tensors)
        again = [tf.identity(next(taken)) for _ in leaves]
        for own, leaf in zip(again, leaves, strict=True):
            if mask_of(leaf) is not None:
                set_mask(own, next(taken))
            if logits_of(leaf) is not None:
                set_logits(own, next(taken))
        y, sample_weight = keras.tree.map_structure(
            lambda x: None if x is None else next(taken), (y, sample_weight)
        )
        return compute(y, keras.tree.pack_sequence_as(y_pred, again), sample_weight)

    def traced(self, function: _Function, passed: int = 0) -> Any:
        """A function of such tensors, for any rows along the axes that are not passed."""
        axes = [*self.sizes][passed:]
        specs = [
            _spec_of(tensor, [dims[axis] for axis in axes if axis in dims])
            for tensor, dims in zip(self.tensors, self.splits, strict=True)
        ]
        return tf.function(function, autograph=False).get_concrete_function(*specs)

    def together(
        self, traced: Any, tensors: Sequence[tf.Tensor], gives: Sequence[int | None]
    ) -> list[tf.Tensor]:
        """What a function makes of whole tensors.

        Args:
            gives: for each that it returns, which tensor's layout it has; None: all have the same.
        """
        axes = [*self.sizes]
        for passed in range(1, len(axes)):
            function = functools.partial(self._along, axes[passed - 1 :], traced, gives)
            traced = self.traced(function, passed)
        return self._along(axes[-1:], traced, gives, *tensors)

    def _along(
        self, axes: Sequence[str], traced: Any, gives: Sequence[int | None], *tensors: tf.Tensor
    ) -> list[tf.Tensor]:
        """The same of what ranks along the first of some axes have together."""
        axis, *others = axes
        ranks = self.outputs.ranks
        rows = ranks.rows(self.sizes[axis], axis)
        numbers = (rows[0], rows[1] - rows[0], self.sizes[axis])
        here = Here.of(*(tf.constant(number, tf.int64) for number in numbers))
        has: list[layouts.Layout] = [
            Rows(dims[axis]) if axis in dims else SAME for dims in self.splits
        ]
        step = followed(traced, has, alike=self._alike(others))
        self.outputs.told.update(gathered(step.decisions))
        returned = [
            (tensor, SAME if place is None else has[place])
            for (tensor, _), place in zip(step.returned, gives, strict=True)
        ]
        values = {own.name: each for own, each in zip(step.inputs, tensors, strict=True)}
        meeting = Together(ranks.group([axis]))
        return written(step._replace(returned=returned), values, here, meeting)[0]

    def _alike(self, axes: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Which dimensions of tensors are of one size: that of samples, and those that axes cut."""
        samples = [(i, 0) for i, tensor in enumerate(self.tensors) if tensor.shape.rank]
        others = [[(i, dims[a]) for i, dims in enumerate(self.splits) if a in dims] for a in axes]
        return [samples, *others]


def _call_of(outputs: Outputs, y: Any, y_pred: Any, sample_weight: Any) -> _Call | None:
    """None where all outputs are whole."""
    leaves = keras.tree.flatten(y_pred)
    known = outputs.of(leaves)
    sizes: dict[str, int] = {}
    for i, output in enumerate(known):
        own = {} if output is None else _sizes(output)
        # Rows are those of one size; what is cut otherwise is gathered.
        if output is not None and any(sizes.get(axis, n) != n for axis, n in own.items()):
            leaves[i], known[i] = output.whole(), None
        else:
            sizes |= own
    if not sizes:
        return None
    tensors, splits, beside = [*leaves], [_dims(output) for output in known], []
    for leaf, output in zip(leaves, known, strict=True):
        for each in (mask_of(leaf), logits_of(leaf)):
            if each is not None:
                tensors.append(each)
                beside.append({a: d for a, d in _dims(output).items() if d < each.shape.rank})
    splits += beside
    count = len(tensors)
    for leaf in keras.tree.flatten((y, sample_weight)):
        if leaf is not None:
            whole = tf.convert_to_tensor(leaf)
            dims = _alike(whole, known, sizes)
            box = {dim: outputs.ranks.rows(sizes[axis], axis) for axis, dim in dims.items()}
            tensors.append(cut(whole, box))
            splits.append(dims)
    arguments = y, keras.tree.pack_sequence_as(y_pred, leaves), sample_weight
    return _Call(outputs, arguments, tensors, splits, sizes, count)


def _alike(
    whole: tf.Tensor, known: Sequence[Output | None], sizes: dict[str, int]
) -> dict[str, int]:
    """The dimensions of labels or weights that are as those of outputs that an axis cuts. Were they
    others, these would only be gathered again."""
    found: dict[str, int] = {}
    for axis, dim in ((a, d) for output in known for a, d in _dims(output).items()):
        is_free = axis not in found and dim not in found.values()  # two heads may be cut otherwise
        if is_free and dim < (whole.shape.rank or 0) and whole.shape[dim] == sizes[axis]:
            found[axis] = dim
    return found


def _dims(output: Output | None) -> dict[str, int]:
    return {} if output is None else output.layout.dims


def _sizes(output: Output) -> dict[str, int]:
    return {axis: size for dim, axis in output.layout.splits if (size := output.shape[dim])}


def _spec_of(tensor: tf.Tensor, opened: Sequence[int]) -> tf.TensorSpec:
    """Of any number of samples, and of rows of what is cut."""
    shape = [None if i in (0, *opened) else n for i, n in enumerate(tensor.shape)]
    return tf.TensorSpec(shape, tensor.dtype)
