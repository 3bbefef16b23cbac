"""What lets training keep its accuracy with large batches. All of it works on one process, too.

To load a saved model that has some of it, ``import tnt_notebook.keras`` first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import keras
from keras import ops

_PACKAGE = "tnt_notebook"


def scaled_rate(
    rate: float, batch_size: int, base: int = 256, rule: Literal["linear", "sqrt"] = "linear"
) -> float:
    """The learning rate for another batch size.

    Args:
        rate: the one that is good for batches of `base` samples.
        batch_size: of the global batch.
        rule: ``"linear"``: as many times as large as the batch, since one step takes the place of
            several (Goyal et al., Accurate, large minibatch SGD, 2017, section 2.1); ``"sqrt"``:
            the square root of that, which keeps the variance of a step (Krizhevsky, One weird
            trick, 2014, section 5), and is usual with Adam and its like.

    Raises:
        ValueError: a size is less than 1, or there is no such rule.
    """
    if batch_size < 1 or base < 1:
        raise ValueError(f"batches have 1 sample at least, not {min(batch_size, base)}")
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"rule is 'linear' or 'sqrt', not {rule!r}")
    factor = batch_size / base
    return rate * (factor if rule == "linear" else math.sqrt(factor))


def fit_with_growing_batches(
    model: Any,
    *data: Any,
    batch_size: int,
    epochs: int,
    grow_at: Sequence[int],
    factor: int = 2,
    initial_epoch: int = 0,
    **options: Any,
) -> keras.callbacks.History:
    """``model.fit`` with batches that grow while it trains, in place of a learning rate that falls
    (Smith et al., Don't decay the learning rate, increase the batch size, ICLR 2018).

    It is a ``fit`` for each batch size: what callbacks count, such as the patience of
    ``EarlyStopping``, begins anew where batches grow.

    Args:
        model: a Keras model, or a ``tnt.Model``.
        data, options: for ``fit``; arrays, since batches of a dataset are made already.
        batch_size: of the global batch, to begin with.
        grow_at: after how many epochs it grows, each time.
        factor: how many times as large it is then.

    Returns:
        The history of all epochs.

    Raises:
        ValueError: batches would not grow, or not within the epochs.
    """
    if factor < 2:
        raise ValueError(f"batches grow by a factor of 2 at least, not {factor}")
    edges = [*grow_at]
    if edges != sorted({*edges}) or not all(0 < edge < epochs for edge in edges):
        raise ValueError(f"grow_at has epochs between 0 and {epochs}, in order, not {edges}")
    whole: keras.callbacks.History | None = None
    for times, (begin, end) in enumerate(pairwise([0, *edges, epochs])):
        if end <= initial_epoch:
            continue
        fitted = model.fit(
            *data,
            batch_size=batch_size * factor**times,
            initial_epoch=max(begin, initial_epoch),
            epochs=end,
            **options,
        )
        if whole is None:
            whole = fitted
        else:
            whole.epoch += fitted.epoch
            for name, values in fitted.history.items():
                whole.history.setdefault(name, []).extend(values)
        if model.stop_training:
            break
    if whole is None:
        raise ValueError(f"there are no epochs from {initial_epoch} to {epochs}")
    return whole


@keras.saving.register_keras_serializable(_PACKAGE)
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that grows, from step to step, to one that is too large to begin with; then
    it is that, or follows its schedule (Goyal et al., 2017, section 2.2: gradual warm-up).

    Args:
        rate: a number, or a schedule, whose steps count from the end of the warm-up.
        steps: of the warm-up.
        start: part of the rate in the first step.
    """

    def __init__(self, rate: Any, steps: int, start: float = 0.0) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"a warm-up has 1 step at least, not {steps}")
        if not 0 <= start <= 1:
            raise ValueError(f"start is a part of the rate, from 0 to 1, not {start}")
        self.rate, self.steps, self.start = rate, steps, start

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        grown = ops.minimum((step + 1) / self.steps, 1.0)
        rate = self.rate
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(ops.maximum(step - self.steps, 0.0))
        return rate * (self.start + (1 - self.start) * grown)

    def get_config(self) -> dict[str, Any]:
        """What it is saved as."""
        rate = keras.saving.serialize_keras_object(self.rate)
        return {"rate": rate, "steps": self.steps, "start": self.start}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> WarmUp:
        """The one that was saved."""
        rate = keras.saving.deserialize_keras_object(config["rate"])
        return cls(**{**config, "rate": rate})


@keras.saving.register_keras_serializable(_PACKAGE)
class Lars(keras.optimizers.Optimizer):
    """Momentum SGD whose rate is adapted to each weight: by the ratio of its norm to that of its
    gradient (You, Gitman and Ginsburg, Large batch training of convolutional networks, 2017,
    algorithm 1). Biases and other vectors are not adapted, nor decayed. For Adam there is Keras's
    own Lamb.

    Args:
        learning_rate: a number or a schedule; large, as the ratio is small.
        momentum: of the steps.
        l2: of each weight what is added to its gradient.
        trust: the ratio is multiplied by it; the paper's eta.
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        momentum: float = 0.9,
        l2: float = 0.0,
        trust: float = 0.001,
        name: str = "lars",
        **options: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **options)
        if not 0 <= momentum < 1 or l2 < 0 or trust <= 0:
            raise ValueError(
                "momentum is at least 0 and below 1, l2 at least 0, trust above 0, not "
                f"{momentum}, {l2}, {trust}"
            )
        self.momentum, self.l2, self.trust = momentum, l2, trust
        self.momentums: list[keras.Variable] = []

    def build(self, variables: Any) -> None:
        """Makes a momentum for each weight."""
        if self.built:
            return
        super().build(variables)
        self.momentums = [self.add_variable_from_reference(v, name="momentum") for v in variables]

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Applies the gradient of one weight."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(ops.convert_to_tensor(gradient), variable.dtype)
        if len(variable.shape) > 1:
            gradient = self._adapted(gradient, variable)
        momentum = self.momentums[self._get_variable_index(variable)]
        self.assign(momentum, self.momentum * momentum + rate * gradient)
        self.assign_sub(variable, momentum)

    def _adapted(self, gradient: Any, variable: keras.Variable) -> Any:
        of_weight, of_gradient = (ops.sqrt(ops.sum(ops.square(v))) for v in (variable, gradient))
        below = of_gradient + self.l2 * of_weight
        is_there = ops.logical_and(of_weight > 0, below > 0)
        ratio = self.trust * of_weight / ops.where(is_there, below, ops.ones_like(below))
        ratio = ops.where(is_there, ratio, ops.ones_like(ratio))
        return ratio * (gradient + self.l2 * variable)

    def get_config(self) -> dict[str, Any]:
        """What it is saved as."""
        own = {"momentum": self.momentum, "l2": self.l2, "trust": self.trust}
        return {**super().get_config(), **own}
