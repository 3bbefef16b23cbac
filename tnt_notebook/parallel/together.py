"""A model's own step, traced on this rank's samples as if there were no others, and run by all
ranks as one process runs it on all samples: see :mod:`tnt_notebook.parallel.graph.step`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tnt_notebook.parallel.data import Zipped, share_of, unzipped
from tnt_notebook.parallel.graph.emission import Here
from tnt_notebook.parallel.graph.layouts import SAME, Rows
from tnt_notebook.parallel.graph.step import Given, gathered, run_together
from tnt_notebook.parallel.interpose import as_one
from tnt_notebook.parallel.step import Step


def is_possible(data: Any) -> bool:
    """Whether a step of this batch can be traced: not where it runs in Python, nor yet of ragged or
    sparse tensors."""
    leaves = [leaf for leaf in tf.nest.flatten(unzipped(data)) if leaf is not None]
    return not tf.executing_eagerly() and all(isinstance(leaf, tf.Tensor) for leaf in leaves)


def run(
    step: Step, own_step: Callable[[Any], Any], data: Any, summed: Sequence[tf.Tensor] = ()
) -> tuple[Any, list[tf.Tensor]]:
    """Traces a step into the function that is being traced, as ranks run it together.

    Args:
        own_step: the model's, a function of a batch.
        data: this rank's samples, or a borrowed one.
        summed: of this rank, numbers of which the sums over ranks are wanted.

    Returns:
        What the step returns, the same on all ranks, and the sums.
    """
    batch, share = unzipped(data), step.share
    leaves = [leaf for leaf in tf.nest.flatten(batch) if leaf is not None]
    specs = tf.nest.map_structure(lambda leaf: leaf if leaf is None else _spec_of(leaf), batch)

    def traced(batch: Any) -> Any:
        # TensorFlow traces a function twice if it makes variables.
        now = replace(step, as_one=True, exchanged=[])
        with as_one(now):
            outputs = own_step(batch)
        step.exchanged = now.exchanged
        return outputs

    function = tf.function(traced, autograph=False).get_concrete_function(specs)
    has_rows = [leaf.shape.rank != 0 for leaf in leaves]
    here = Here(tf.cast(step.begin, tf.int64), share.local, share.total)
    times = [tf.constant(1, tf.int64)] * len(leaves)
    if isinstance(data, Zipped):
        here, times = _of_shortest(step, leaves)
    given = [
        Given(leaf[: here.rows * n], Rows(0)) if rows else Given(leaf, SAME)
        for leaf, n, rows in zip(leaves, times, has_rows, strict=True)
    ]
    if isinstance(data, Zipped):
        given = [
            each._replace(each=n) if rows else each
            for each, n, rows in zip(given, times, has_rows, strict=True)
        ]
    outputs, sums, decisions = run_together(function, given, here, step.over, summed)
    step.told.update(gathered(decisions))
    return outputs, sums


def _of_shortest(step: Step, leaves: Sequence[tf.Tensor]) -> tuple[Here, list[tf.Tensor]]:
    """Which rows of the shortest tensor are this rank's, and how many others have for each."""
    lengths = [tf.shape(leaf, out_type=tf.int64)[0] if leaf.shape.rank else None for leaf in leaves]
    known = [length for length in lengths if length is not None]
    least = functools.reduce(tf.minimum, known)  # one that is borrowed counts here
    times = [tf.constant(1, tf.int64) if n is None else n // least for n in lengths]
    share, first = step.share, known[0] // least
    total = share.total // first
    begin, _ = share_of(total, step.over.rank, step.over.size)
    return Here(begin, share.local // first, total), times


def _spec_of(leaf: tf.Tensor) -> tf.TensorSpec:
    shape = leaf.shape if not leaf.shape.rank else [None, *leaf.shape[1:]]
    return tf.TensorSpec(shape, leaf.dtype)
