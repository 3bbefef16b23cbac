"""A model's own step, traced on this rank's samples as if there were no others, and run by all
ranks as one process runs it on all samples: see :mod:`tnt_notebook.parallel.graph.step`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.data import Zipped, rows, unzipped
from tnt_notebook.parallel.data.shard import has_rows, length_of
from tnt_notebook.parallel.graph.emission import Here
from tnt_notebook.parallel.graph.layouts import SAME, Layout, Rows
from tnt_notebook.parallel.graph.step import Given, Together, gathered, run_together
from tnt_notebook.parallel.step.interpose import as_one, gate
from tnt_notebook.parallel.step.step import Step


def run(
    step: Step,
    own_step: Callable[[Any], Any],
    data: Any,
    summed: Sequence[tf.Tensor] = (),
    kept: list[keras.Variable] | None = None,
    returned: Layout = SAME,
) -> tuple[Any, list[tf.Tensor]]:
    """Traces a step into the function that is being traced, as ranks run it together.

    Args:
        own_step: the model's, a function of a batch.
        data: this rank's samples, or a borrowed one. Ragged and sparse tensors are brought
            together: all ranks compute the same of them.
        summed: of this rank, numbers of which the sums over ranks are wanted.
        kept: where ranks keep parts of what metrics count: gets the variables.
        returned: how what it returns is wanted.

    Returns:
        What the step returns, and the sums.
    """
    batch = unzipped(data)
    if step.over.size == 1:
        with gate(step):
            return own_step(batch), list(summed)
    specs = tf.nest.map_structure(lambda leaf: leaf if leaf is None else spec_of(leaf), batch)

    def traced(batch: Any) -> Any:
        # TensorFlow traces a function twice if it makes variables.
        now = replace(step, as_one=True, weight=1.0, exchanged=[])
        with as_one(now):
            outputs = own_step(batch)
        step.exchanged = now.exchanged
        return outputs

    function = tf.function(traced, autograph=False).get_concrete_function(specs)
    here, own = _own(step, data)
    meeting = Together(step.over)
    given: list[Given] = []
    for leaf, each in own:
        if isinstance(leaf, tf.Tensor):
            given.append(Given(leaf, SAME if leaf.shape.rank == 0 else Rows(0), each))
        else:
            whole = _whole(leaf, here, each, meeting)
            given += [Given(part, SAME) for part in tf.nest.flatten(whole, expand_composites=True)]
    in_parts = []
    if kept is not None:
        kept += step.model.metrics_variables
        in_parts = [tensor_of(variable) for variable in kept]
    outputs, sums, decisions = run_together(
        function, given, here, step.over, summed, in_parts, returned
    )
    step.told.update(gathered(decisions))
    return outputs, sums


def whole_batch(step: Step, data: Any) -> Any:
    """The samples of all ranks, of a step that runs in Python."""
    here, own = _own(step, data)
    meeting = Together(step.over)
    found = iter([_whole(leaf, here, each, meeting) for leaf, each in own])
    batch = unzipped(data)
    return tf.nest.map_structure(lambda leaf: None if leaf is None else next(found), batch)


def _own(step: Step, data: Any) -> tuple[Here, list[tuple[Any, tf.Tensor | None]]]:
    """Which samples are this rank's; and of each tensor its rows of them, or of a borrowed one,
    with how many there are for each sample, unless there is one."""
    leaves = [leaf for leaf in tf.nest.flatten(unzipped(data)) if leaf is not None]
    here = Here.of(tf.cast(step.begin, tf.int64), step.share.local, step.share.total)
    if not isinstance(data, Zipped):
        return here, [(_rows(leaf, here.computed), None) for leaf in leaves]
    lengths = [length_of(leaf) if has_rows(leaf) else None for leaf in leaves]
    known = [length for length in lengths if length is not None]
    least = functools.reduce(tf.minimum, known)  # one that is borrowed counts here
    share, first = step.share, known[0] // least
    here = Here.of(share.first // first, share.local // first, share.total // first)
    times = [None if length is None else length // least for length in lengths]
    return here, [
        (leaf if n is None else _rows(leaf, here.computed * n), n)
        for leaf, n in zip(leaves, times, strict=True)
    ]


def _rows(leaf: Any, count: tf.Tensor) -> Any:
    return rows(leaf, tf.zeros_like(count), count) if has_rows(leaf) else leaf


def _whole(own: Any, here: Here, each: tf.Tensor | None, meeting: Together) -> Any:
    """Of the rows of all ranks the whole tensor: dense, ragged or sparse."""
    if not has_rows(own):
        return own
    own = _rows(own, here.rows if each is None else here.rows * each)
    if isinstance(own, tf.RaggedTensor):
        lengths = [meeting.gathered(length) for length in own.nested_row_lengths()]
        return tf.RaggedTensor.from_nested_row_lengths(meeting.gathered(own.flat_values), lengths)
    if isinstance(own, tf.SparseTensor):
        rank = own.shape.rank or 1
        n = 1 if each is None else each
        to_batch = tf.one_hot(0, rank, dtype=tf.int64)
        indices = meeting.gathered(own.indices + to_batch * here.first * n)
        shape = tf.concat([[here.total * n], own.dense_shape[1:]], 0)
        return tf.SparseTensor(indices, meeting.gathered(own.values), shape)
    return meeting.gathered(own)


def spec_of(leaf: Any) -> Any:
    """Of a tensor with samples along its first dimension, for any number of them."""
    shape = leaf.shape if not leaf.shape.rank else [None, *leaf.shape[1:]]
    if isinstance(leaf, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, leaf.dtype, leaf.ragged_rank, leaf.row_splits.dtype)
    kind = tf.SparseTensorSpec if isinstance(leaf, tf.SparseTensor) else tf.TensorSpec
    return kind(shape, leaf.dtype)
