"""Where the exchange enters Keras: a few functions, replaced while one step is traced.

===============================  ==================================================================
``GradientTape.gradient``        gradients of the model's variables are exchanged where they are
                                 taken, so that whatever a step does to them it does to those of the
                                 batch
``Optimizer.apply``              the gate that all gradients pass: the others are exchanged, and
                                 the exchange lets the optimizer apply them
``Variable.assign``              recorded: what a step changes on its own must not differ by rank
``SeedGenerator.next``           every rank draws other random numbers from the same state
``reduce_weighted_values``       losses are divided by what one process would have divided by
``Loss.__call__``                a loss that is no mean over samples sees the global batch
``Mean.update_state``            a value that stands for a whole batch counts by the rank's share
``_compute_moments_sync``        batch norm with ``synchronized=True`` sees the global batch
===============================  ==================================================================
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.losses import moments_replaced, reduction_replaced, statistics_replaced
from tnt_notebook.keras.optimizers import classes_with_own_apply, trained_by
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.keras.tensorflow import is_recorded
from tnt_notebook.parallel.exchange import Applied, Apply
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.graph.marks import for_exchange, of_own_samples
from tnt_notebook.parallel.losses import global_reduction
from tnt_notebook.parallel.norm import global_moments
from tnt_notebook.parallel.step import Step, traced_as
from tnt_notebook.parallel.timed import timed
from tnt_notebook.parallel.whole_batch import loss_of_batch

#: Any odd number far from the seeds people choose: the streams of two ranks must not meet.
_SEED_STRIDE = 0x9E3779B1


@contextlib.contextmanager
def interposed(step: Step) -> Iterator[None]:
    """Replaces the functions above inside the ``with`` block, for this step."""
    with (
        traced_as(step),
        gate(step),
        replaced(tf.GradientTape, "gradient", functools.partial(_exchange_where_taken, step)),
        replaced(keras.losses.Loss, "__call__", functools.partial(loss_of_batch, step)),
        recorded_assignments(step.record),
        drawn_apart(step.over.rank, step.drawn),
        interposed_losses(step),
        moments_replaced(global_moments(step)),
    ):
        yield


@contextlib.contextmanager
def as_one(step: Step) -> Iterator[None]:
    """Inside, a step is traced that ranks run together: of the functions above only the second is
    replaced, unless batch norm is to have statistics of a rank's own samples.
    """
    by_rank = statistics_replaced(of_own_samples)
    with gate(step), by_rank if step.batch_norm == "rank" else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def in_python(step: Step) -> Iterator[None]:
    """The same for a step that every rank makes whole, in Python."""
    with gate(step), recorded_assignments(step.record):
        yield


@contextlib.contextmanager
def gate(step: Step) -> Iterator[None]:
    """Of the functions above, the second: inside, ``step.exchange`` stands around optimizers, and
    the trace says how long these work."""
    with contextlib.ExitStack() as stack:
        for kind in classes_with_own_apply():
            stack.enter_context(replaced(kind, "apply", functools.partial(_exchange_first, step)))
        if step.within is not None:
            where_taken = functools.partial(_sum_where_taken, step, step.within)
            stack.enter_context(replaced(tf.GradientTape, "gradient", where_taken))
        yield


@contextlib.contextmanager
def interposed_losses(step: Step) -> Iterator[None]:
    """Of the functions above, those that losses and metrics of a part of a batch need."""
    with (
        reduction_replaced(functools.partial(global_reduction, step)),
        replaced(keras.metrics.Mean, "update_state", functools.partial(_count_by_share, step)),
    ):
        yield


def recorded_assignments(
    record: Callable[[keras.Variable], None],
) -> contextlib.AbstractContextManager[None]:
    """Calls ``record`` with every variable that is to be assigned in the ``with`` block."""

    def recorded(assign: Callable[..., Any], variable: keras.Variable, value: Any) -> Any:
        record(variable)
        return assign(variable, value)

    return replaced(keras.Variable, "assign", recorded)


def drawn_apart(
    number: int, drawn: set[int] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Inside, layers draw other random numbers for each number; for 0 those of one process. The ids
    of the states that they draw from are added to ``drawn``."""
    states = set() if drawn is None else drawn
    draw = functools.partial(_draw_apart, number, states)
    return replaced(keras.random.SeedGenerator, "next", draw)


def _exchange_first(
    step: Step,
    apply: Callable[..., Any],
    optimizer: Any,
    grads: Sequence[Any],
    trainable_variables: Any = None,
) -> Any:
    if step.applying:  # an optimizer inside another, as in LossScaleOptimizer
        return apply(optimizer, grads, trainable_variables)
    grads = list(grads)
    variables = trained_by(optimizer) if trainable_variables is None else list(trainable_variables)
    if len(variables) != len(grads):
        return apply(optimizer, grads, trainable_variables)  # which says so
    if step.within is not None:
        _in_place(step.within, grads, [None if id(v) in step.of_replica else v for v in variables])
    grads = [for_exchange(g) if step.as_one and g is not None else g for g in grads]
    _exchange(step, grads, [None if id(v) in step.of_batch else v for v in variables])
    step.exchanged.extend(variables)
    given = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
    _check_unchanged(step, given)
    own = Apply(optimizer, apply)
    state = list(optimizer.variables)
    step.applied[id(optimizer)] = Applied(own, [v for _, v in given], state)
    step.applying = True
    try:
        here = [g for g, v in given if step.owners.get(id(v), step.over.rank) == step.over.rank]
        with timed("optimizer", step.over, here):
            step.exchange.apply(step.exchanging, own, grads, variables)
    finally:
        step.applying = False


def _check_unchanged(step: Step, given: Sequence[tuple[Any, keras.Variable]]) -> None:
    """What an exchange applies at the end of an epoch does not pass through the model's step."""
    if not step.exchange.delays:
        return
    changed = [v.path for g, v in given if id(v) in step.of_batch and id(g) not in step.given]
    if changed:
        raise ModelError(
            f"train_step changes the gradients of {', '.join(changed)} before it applies them, and "
            f"the exchange {name_of(step.exchange)} keeps some for later: let the optimizer change "
            "them (clipnorm, global_clipnorm), or take another exchange."
        )


def _exchange_where_taken(
    step: Step,
    differentiate: Callable[..., Any],
    tape: tf.GradientTape,
    target: Any,
    sources: Any,
    *arguments: Any,
    **keywords: Any,
) -> Any:
    if step.differentiating:  # TensorFlow itself, as where activations are computed again
        return differentiate(tape, target, sources, *arguments, **keywords)
    step.differentiating = True
    try:
        found = differentiate(tape, target, sources, *arguments, **keywords)
    finally:
        step.differentiating = False
    variables = _trained(step, sources)
    own = {id(v) for v in variables if v is not None}
    if is_recorded():
        return found  # it is differentiated again
    if tf.compat.v1.get_default_graph() is not step.graph:
        step.of_slice |= own  # it may be computed never, or more than once
    else:
        step.of_batch |= own
        gradients = tf.nest.flatten(found)
        _exchange(step, gradients, variables)
        found = tf.nest.pack_sequence_as(found, gradients)
    both = [v.path for v in variables if v is not None and id(v) in step.of_slice & step.of_batch]
    if both:
        raise ModelError(
            f"train_step takes gradients of {', '.join(both)} inside of a tf.function, a condition "
            "or a loop, and outside as well, so it is unclear what the ranks are to exchange. Take "
            "all of them outside."
        )
    return found


def _sum_where_taken(
    step: Step,
    within: Callable[..., list[Any]],
    differentiate: Callable[..., Any],
    tape: tf.GradientTape,
    target: Any,
    sources: Any,
    *arguments: Any,
    **keywords: Any,
) -> Any:
    """Ranks of a replica have parts of gradients; what a step does to them it does to their sum."""
    if step.differentiating:  # TensorFlow itself, as where activations are computed again
        return differentiate(tape, target, sources, *arguments, **keywords)
    step.differentiating = True
    try:
        found = differentiate(tape, target, sources, *arguments, **keywords)
    finally:
        step.differentiating = False
    gradients, variables = tf.nest.flatten(found), _trained(step, sources)
    _in_place(within, gradients, variables)
    step.of_replica |= {id(v) for v in variables if v is not None}
    return tf.nest.pack_sequence_as(found, gradients)


def _trained(step: Step, sources: Any) -> list[keras.Variable | None]:
    """The variables of the model among what a gradient is taken of."""
    trained = {id(tensor): v for v in step.model.trainable_variables for tensor in (v, v.value)}
    return [trained.get(id(source)) for source in tf.nest.flatten(sources)]


def _exchange(step: Step, gradients: list[Any], variables: Sequence[keras.Variable | None]) -> None:
    _in_place(functools.partial(step.exchange.gradients, step.exchanging), gradients, variables)
    step.given |= {id(g) for g, v in zip(gradients, variables, strict=True) if v is not None}


def _in_place(
    change: Callable[[list[Any], list[keras.Variable]], list[Any]],
    gradients: list[Any],
    variables: Sequence[keras.Variable | None],
) -> None:
    """Changes those gradients that are there, of variables that are given."""
    pairs = enumerate(zip(gradients, variables, strict=True))
    own = {i: v for i, (gradient, v) in pairs if gradient is not None and v is not None}
    if own:
        given = [gradients[i] for i in own]
        for i, gradient in zip(own, change(given, list(own.values())), strict=True):
            gradients[i] = gradient


def _draw_apart(
    number: int, states: set[int], draw: Callable[..., Any], generator: Any, ordered: bool = True
) -> Any:
    states.add(id(generator.state))
    seed = draw(generator, ordered)
    # The state advances alike on all ranks, so that it is the same everywhere when saved.
    offset = tf.constant([number * _SEED_STRIDE % (1 << 32), 0], tf.uint32)
    return seed + tf.cast(offset, seed.dtype)


def _count_by_share(
    step: Step, update: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    # One process would have counted the batch once, with the mean over all its samples.
    if sample_weight is None and len(keras.ops.shape(values)) == 0:
        sample_weight = tf.cast(step.scale, metric.dtype)
    return update(metric, values, sample_weight)
