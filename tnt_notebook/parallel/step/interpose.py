"""Where the exchange enters Keras: a few functions, replaced while one step is traced.

===============================  ==================================================================
``Optimizer.apply``              the gate that all gradients pass: the exchange takes them, and
                                 lets the optimizer apply what it gives
``GradientTape.gradient``        on a mesh: ranks of a replica have parts of gradients, which are
                                 added up where they are taken; ``jacobian`` takes one at a time
``Variable.assign``              where ranks train apart, and in Python: recorded
``SeedGenerator.next``           where ranks train apart: every rank draws other random numbers
``BatchNormalization._moments``  where ranks run a step together, and statistics are by rank: marked
===============================  ==================================================================
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.losses import statistics_replaced
from tnt_notebook.keras.optimizers import classes_with_own_apply, trained_by
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.parallel.exchange import Applied, Apply
from tnt_notebook.parallel.exchange.timed import timed
from tnt_notebook.parallel.graph.marks import for_exchange, of_own_samples
from tnt_notebook.parallel.step.step import Step
from tnt_notebook.parallel.step.weights import Weights

#: Any odd number far from the seeds people choose: the streams of two ranks must not meet.
_SEED_STRIDE = 0x9E3779B1


@contextlib.contextmanager
def apart(step: Step) -> Iterator[None]:
    """Inside, a step is traced that each rank makes by itself, of its own samples."""
    with (
        gate(step),
        recorded_assignments(step.record),
        drawn_apart(step.over.rank, step.drawn),
    ):
        yield


@contextlib.contextmanager
def as_one(step: Step) -> Iterator[None]:
    """Inside, a step is traced that ranks run together."""
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
    """Inside, ``step.exchange`` stands around optimizers, and the trace says how long they work."""
    with contextlib.ExitStack() as stack:
        for kind in classes_with_own_apply():
            stack.enter_context(replaced(kind, "apply", functools.partial(_exchange_first, step)))
        if step.within is not None:
            where_taken = functools.partial(_sum_where_taken, step, step.within)
            stack.enter_context(replaced(tf.GradientTape, "gradient", where_taken))
            for name in ("jacobian", "batch_jacobian"):
                stack.enter_context(replaced(tf.GradientTape, name, _one_after_another))
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
    with contextlib.nullcontext() if step.within is None else step.within.at_work():
        return _exchanged(step, apply, optimizer, list(grads), trainable_variables)


def _exchanged(
    step: Step,
    apply: Callable[..., Any],
    optimizer: Any,
    grads: list[Any],
    trainable_variables: Any,
) -> Any:
    variables = trained_by(optimizer) if trainable_variables is None else list(trainable_variables)
    if len(variables) != len(grads):
        return apply(optimizer, grads, trainable_variables)  # which says so
    if step.within is not None:
        own_code = [v if id(v) in step.of_replica else None for v in variables]
        others = [None if id(v) in step.of_replica else v for v in variables]
        _in_place(step.within.block, grads, own_code)
        _in_place(step.within.summed, grads, others)
    grads = [for_exchange(g) if step.as_one and g is not None else g for g in grads]
    _in_place(functools.partial(step.exchange.gradients, step.exchanging), grads, variables)
    step.exchanged.extend(variables)
    given = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
    own = Apply(optimizer, apply if step.weights is None else step.weights.applying(apply))
    state = list(optimizer.variables)
    step.applied[id(optimizer)] = Applied(own, [v for _, v in given], state)
    step.applying = True
    try:
        here = [g for g, v in given if step.owners.get(id(v), step.over.rank) == step.over.rank]
        with timed("optimizer", step.over, here):
            step.exchange.apply(step.exchanging, own, grads, variables)
    finally:
        step.applying = False


def _sum_where_taken(
    step: Step,
    within: Weights,
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
        with within.at_work():
            found = differentiate(tape, target, sources, *arguments, **keywords)
    finally:
        step.differentiating = False
    gradients, variables = tf.nest.flatten(found), _trained(step, sources)
    _in_place(within.summed, gradients, variables)
    _in_place(within.whole, gradients, variables)
    step.of_replica |= {id(v) for v in variables if v is not None}
    return tf.nest.pack_sequence_as(found, gradients)


def _one_after_another(
    differentiate: Callable[..., Any],
    tape: tf.GradientTape,
    target: Any,
    sources: Any,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    parallel_iterations: int | None = None,
    experimental_use_pfor: bool = True,
) -> Any:
    """Many gradients, of which each is exchanged as one is: no two can be on their way at once."""
    return differentiate(tape, target, sources, unconnected_gradients, 1, False)


def _trained(step: Step, sources: Any) -> list[keras.Variable | None]:
    """The variables of the model among what a gradient is taken of."""
    trained = {id(tensor): v for v in step.model.trainable_variables for tensor in (v, v.value)}
    return [trained.get(id(source)) for source in tf.nest.flatten(sources)]


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
