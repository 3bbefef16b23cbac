"""What optimizers keep, and the functions of Keras that they call. Keras 3.10 to 3.15."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras.src.optimizers import base_optimizer

from tnt_notebook.keras.replaced import replaced


def classes_with_own_apply() -> list[type]:
    """Every class whose ``apply`` gradients may pass, people's own among them. Keras has three: the
    base class, LossScaleOptimizer and, from 3.15, MultiOptimizer."""
    found, queue = [], [base_optimizer.BaseOptimizer]
    while queue:
        kind = queue.pop()
        queue.extend(kind.__subclasses__())
        if "apply" in vars(kind) and kind not in found:
            found.append(kind)
    return found


def trained_by(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The variables that it was built for: those that ``apply(gradients)`` changes."""
    return list(optimizer._trainable_variables)


def global_norm_replaced(
    norm: Callable[[Sequence[Any]], Any],
) -> contextlib.AbstractContextManager[None]:
    """Inside, ``global_clipnorm`` clips by what ``norm`` says of gradients."""
    return replaced(base_optimizer, "global_norm", lambda _, gradients: norm(gradients))


@contextlib.contextmanager
def only_slots(
    optimizer: keras.optimizers.Optimizer, chosen: Callable[[keras.Variable], bool]
) -> Iterator[None]:
    """Inside, an optimizer leaves other weights and slots alone.

    It goes through all of them for moving averages, and to reset accumulated gradients. Keras
    passes over ``None`` there, but TensorFlow's way to overwrite weights with their averages does
    not: that of other backends is used.
    """
    overwrite = "_overwrite_model_variables_with_average_value"
    whole = []
    for owner in {optimizer, getattr(optimizer, "inner_optimizer", optimizer)}:
        for name in ("_model_variables_moving_average", "_accumulated_gradients"):
            slots = vars(owner).get(name)
            if slots:
                whole.append((owner, name, slots))
                vars(owner)[name] = [slot if chosen(slot) else None for slot in slots]
    try:
        general = getattr(base_optimizer.BaseOptimizer, overwrite)
        with replaced(keras.optimizers.Optimizer, overwrite, lambda _, *given: general(*given)):
            yield
    finally:
        for owner, name, slots in whole:
            vars(owner)[name] = slots
