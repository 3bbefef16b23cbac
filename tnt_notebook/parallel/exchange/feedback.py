"""What lossy exchanges share: which gradients they compress, and the error that is fed back.

Each rank compresses ``share * gradient + error``, and keeps as the next error what that has left
out. So nothing is lost, but it comes later; and since the errors have the ranks' shares in them,
their sum is what counts, on any number of ranks.

    Seide et al., 1-bit stochastic gradient descent, Interspeech 2014
    Stich et al., Sparsified SGD with memory, NeurIPS 2018
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.exchange import ExchangeStep
from tnt_notebook.parallel.exchange.allreduce import Allreduce

#: Of a dense gradient, with its share and the error in it, and of its variable: the sum over ranks
#: of what is sent, and what this rank has not sent.
Compress = Callable[[ExchangeStep, tf.Tensor, keras.Variable], tuple[tf.Tensor, tf.Tensor]]


def with_feedback(
    step: ExchangeStep,
    gradients: Sequence[Any],
    variables: Sequence[keras.Variable],
    is_worth_it: Callable[[keras.Variable], bool],
    compress: Compress,
) -> list[Any]:
    """Means of all ranks' gradients: compressed where they are dense and worth it, else whole."""
    result = list(gradients)
    chosen = [
        i
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
        if not isinstance(gradient, tf.IndexedSlices) and is_worth_it(variable)
    ]
    others = [i for i in range(len(result)) if i not in chosen]
    whole = Allreduce().gradients(
        step, [gradients[i] for i in others], [variables[i] for i in others]
    )
    for i, gradient in zip(others, whole, strict=True):
        result[i] = gradient
    for i in reversed(chosen):  # as backpropagation gives them
        gradient, variable = tf.convert_to_tensor(gradients[i]), variables[i]
        error = step.keep("error", of=variable, like=gradient, rule="sum")
        # A NaN of a rank's borrowed sample times 0 would still be a NaN.
        own = tf.where(step.scale > 0, gradient * tf.cast(step.scale, gradient.dtype), 0)
        result[i], left = compress(step, own + error.read_value(), variable)
        error.assign(left)
    return result
