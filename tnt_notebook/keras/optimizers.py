"""What optimizers keep, and the functions of Keras that they call. Keras 3.10 to 3.15."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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


def made_anew(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The same by its config, not built; Adam where it cannot be made again from that."""
    try:
        return type(optimizer).from_config(optimizer.get_config())
    except Exception:  # of people's own classes
        return keras.optimizers.Adam()


def with_inner(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """An optimizer, and those that it hands gradients to: a LossScaleOptimizer has one, a
    MultiOptimizer several."""
    inner = getattr(optimizer, "inner_optimizer", None)
    several = optimizer.optimizers if is_multi(optimizer) else [inner] if inner else []
    return [optimizer, *(one for part in several for one in with_inner(part))]


def is_multi(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether it is a MultiOptimizer, which Keras has from 3.15."""
    return isinstance(optimizer, getattr(keras.optimizers, "MultiOptimizer", ()))


@contextlib.contextmanager
def _applied(variables: Sequence[keras.Variable]) -> Iterator[list[Sequence[keras.Variable]]]:
    """Inside, the last of what it gives are the variables whose gradients optimizers work with just
    now: those given, or of an ``apply`` within; without those that have no gradient."""
    applied = [variables]

    def apply(
        own: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None
    ) -> Any:
        given = trained_by(optimizer) if trainable_variables is None else trainable_variables
        # Keras itself says so where there are more of these than of those.
        applied.append([v for g, v in zip(grads, given, strict=False) if g is not None])
        try:
            return own(optimizer, grads, trainable_variables)
        finally:
            applied.pop()

    with replaced(base_optimizer.BaseOptimizer, "apply", apply):
        yield applied


@contextlib.contextmanager
def global_norm_replaced(
    norm: Callable[[Sequence[Any], Sequence[keras.Variable]], Any],
    variables: Sequence[keras.Variable],
) -> Iterator[None]:
    """Inside, ``global_clipnorm`` clips by what ``norm`` says of gradients, and of the variables
    that they are of: those given, or of an ``apply`` within."""
    with _applied(variables) as applied:

        def global_norm(_: Any, gradients: Sequence[Any]) -> Any:
            return norm(gradients, applied[-1])

        with replaced(base_optimizer, "global_norm", global_norm):
            yield


@contextlib.contextmanager
def clip_norms_replaced(
    squares_of_whole: Mapping[int, Callable[[Any], Any]], variables: Sequence[keras.Variable]
) -> Iterator[None]:
    """Inside, ``clipnorm`` clips the gradients of some variables, given by id, by the norm whose
    square a function makes of that of a gradient; those of others as ever. The variables of the
    gradients are these, or those of an ``apply`` within."""
    with _applied(variables) as applied:

        def clip(own: Callable[..., Any], optimizer: Any, grads: Sequence[Any]) -> Any:
            limit = optimizer.clipnorm
            if not (limit and limit > 0):
                return own(optimizer, grads)
            ops, result = keras.ops, []
            for gradient, variable in zip(grads, applied[-1], strict=True):
                square_of_whole = squares_of_whole.get(id(variable))
                if square_of_whole is None:
                    result.append(optimizer._clip_by_norm(gradient))
                    continue
                square = square_of_whole(ops.sum(ops.square(gradient)))
                norm = ops.maximum(ops.sqrt(square), limit)
                result.append(ops.multiply(gradient, limit / norm))  # may be tf.IndexedSlices
            return result

        with replaced(base_optimizer.BaseOptimizer, "_clip_gradients", clip):
            yield


@contextlib.contextmanager
def applied_to(
    optimizer: keras.optimizers.Optimizer, variables: Collection[keras.Variable]
) -> Iterator[None]:
    """Inside, ``apply`` may be given the gradients of these only. A MultiOptimizer wants those of
    all that it was built for."""
    own = [one for one in with_inner(optimizer) if is_multi(one)]
    places = [one._trainable_variables_indices for one in own]
    for one in own:
        chosen = {one._var_key(v) for v in variables}
        known = one._trainable_variables_indices
        one._trainable_variables_indices = {k: i for k, i in known.items() if k in chosen}
    try:
        yield
    finally:
        for one, known in zip(own, places, strict=True):
            one._trainable_variables_indices = known


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
    for owner in with_inner(optimizer):
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
