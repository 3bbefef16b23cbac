"""What losses of a whole batch divide by, known before its micro-batches go through the model.

A loss that is masked, as by ``ignore_class``, or has ``reduction="mean_with_sample_weight"``,
divides by the entries or the weights that count in the batch. They follow from the labels and the
weights: that part of the loss is run on all of them, ahead of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.interpose import interposed_losses
from tnt_notebook.parallel.step import Step

_OF_SHAPES = ("OnesLike", "Rank", "Shape", "Size", "ZerosLike")
_LABEL = "allreduce of what losses divide by"


def divisors_of(
    step: Step,
    compute_loss: Callable[..., Any],
    outputs: Any,
    y: Any,
    sample_weight: Any,
    replicas: Communicator | None,
) -> list[tf.Tensor]:
    """Of each loss that divides by something else than the number of samples, in the order in
    which they are computed: by what, in the batch of all replicas. Scalars, float64.

    Args:
        step: with this pipeline's share of the batch.
        compute_loss: of ``(y, outputs, sample_weight)``.
        outputs: tf.TensorSpec of the model's outputs.
        y, sample_weight: this pipeline's part of the batch.
        replicas: the ranks that have the last stage, if there are several.

    Raises:
        ModelError: it follows from the model's outputs.
    """
    specs = keras.tree.flatten(outputs)
    given = [leaf for leaf in keras.tree.flatten((y, sample_weight)) if leaf is not None]

    def run(local: tf.Tensor, total: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
        found: list[tf.Tensor] = []

        def record(divisor: tf.Tensor) -> tf.Tensor:
            found.append(divisor)
            return divisor

        leaves = iter(tensors[len(specs) :])
        labels, weights = keras.tree.map_structure(
            lambda leaf: None if leaf is None else next(leaves), (y, sample_weight)
        )
        made = keras.tree.pack_sequence_as(outputs, tensors[: len(specs)])
        here = Step(step.over, step.exchange, step.model, Share(local, total, step.share[2]))
        here.whole_divisor = record
        with interposed_losses(here):
            compute_loss(labels, made, weights)
        return found

    counts = [step.share.local, step.share.total]
    known = [tf.TensorSpec((None, *t.shape[1:]), t.dtype) for t in given]
    with tf.init_scope():
        function = tf.function(run, autograph=False).get_concrete_function(
            *[tf.TensorSpec((), tf.int64)] * 2, *specs, *known
        )
    if not function.outputs:
        return []
    if _depends(function.outputs, function.inputs[2 : 2 + len(specs)]):
        raise ModelError(
            "A loss has a mask that follows from the model's outputs. It is divided by what is "
            "known only when the whole batch has gone through the model, and a pipeline computes "
            "gradients before that. Let the mask follow from the labels or be sample weights, "
            "train without a pipeline, or use one micro-batch and one replica."
        )
    rows = tf.shape(given[0])
    own = function(*counts, *(_zeros(spec, rows) for spec in specs), *given)
    if replicas is None:
        return list(own)
    (summed,) = ops.allreduce([tf.stack(own)], label=_LABEL, over=replicas)
    return tf.unstack(summed, len(own))


def _zeros(spec: tf.TensorSpec, like: tf.Tensor) -> tf.Tensor:
    """Where sizes are not known, as large as the labels."""
    sizes = [like[axis] if n is None else n for axis, n in enumerate(spec.shape)]
    return tf.zeros(sizes, spec.dtype)


def _depends(found: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> bool:
    """Whether something is computed from some of these, not from their shapes alone."""
    names, seen, queue = {t.name for t in inputs}, set(), list(found)
    while queue:
        tensor = queue.pop()
        if tensor.name in names:
            return True
        if tensor.op not in seen and tensor.op.type not in _OF_SHAPES:
            seen.add(tensor.op)
            queue.extend(tensor.op.inputs)
    return False
