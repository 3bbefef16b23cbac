"""What a step takes beside its layers on the ranks that are there: measured once, with all of them
at work, and kept. Collective.

Steps are those of real fits of a model in which next to nothing is done: of whole copies; with
micro-batches of one rank, of which each more is two actions more; and in a pipeline of ``s``
stages, where each more takes moreover what it waits for messages: with ``s`` of them under way,
there and back, ``2 (s - 1) / s`` messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from statistics import median
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import World
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.lazy_variables import is_here
from tnt_notebook.keras.optimizers import made_anew
from tnt_notebook.parallel.consistency import agreement, seeds
from tnt_notebook.parallel.layer_graph.graph import Graph, trained_values, wiring_of
from tnt_notebook.parallel.layer_graph.measurement_key import is_lasting, key_of, machine
from tnt_notebook.parallel.layer_graph.profile import rows_together, unchanged
from tnt_notebook.parallel.layer_graph.timing import median_s, whole_run
from tnt_notebook.parallel.layers.link import key_of_ranks
from tnt_notebook.parallel.training.session import Session
from tnt_notebook.plan import measurements
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.overheads import Overheads

#: Kinds of measurements of a model that its fits correct: see :class:`Overheads`.
BUSY, BESIDE = "busy", "beside"
#: And one that they do not.
_SPEEDS = "speeds"

#: In turn, of which the median counts.
_ROUNDS = 3
#: Of fits in which nothing is done: steps; few and many micro-batches.
_STEPS, _FEW, _MANY = 25, 2, 10
#: That a rank runs something, again and again.
_LONG_S = 0.15
#: What layers of such a model are named, with a number.
_LAYER = "tnt_nothing"
#: Weights of an optimizer that is timed, and numbers of a large one.
_WEIGHTS, _NUMBERS = 32, 1 << 20


#: Runs ``fit`` of a model in a session, over all ranks: :func:`.scope.call`.
Call = Callable[..., Any]


def overheads_of(over: World, model: keras.Model, graph: Graph, rows: int, call: Call) -> Overheads:
    """Those of the steps of a model, of so many samples on each rank. Raises ModelError where its
    layers cannot be timed."""
    try:
        with seeds.untouched():
            seeds.synchronise(over)  # as fits have it
            rows = rows_together(graph, rows)
            # Rank 0 keeps what is measured, by what it knows of itself and of the model.
            ranks_key, key = agreement.from_rank_0(
                over, (key_of_machines(over), _key_of_model(over, model, graph, rows))
            )
            step_s, action_s, message_s = _kept(
                over, "steps", ranks_key, 3, lambda: _steps(over, call)
            )
            variable_s, element_s = _of_optimizer(over, getattr(model, "optimizer", None))
            lasting = all(map(is_lasting, graph.calls))
            busy, speeds = _busy(over, model, graph, rows, key, lasting)
            (beside,) = _kept(over, BESIDE, key, 1, lambda: (1.0,), lasting)
            step_s, variable_s, element_s = (beside * s for s in (step_s, variable_s, element_s))
            return Overheads(
                step_s, action_s, message_s, variable_s, element_s, busy, beside,
                ranks_key, key, speeds,
            )  # fmt: skip
    except (ValueError, tf.errors.OpError) as error:
        raise ModelError(f"Its layers could not be timed: {error}") from error


def _kept(
    over: World,
    kind: str,
    key: str,
    count: int,
    measure: Callable[[], tuple[float, ...]],
    lasting: bool = True,
) -> tuple[float, ...]:
    """What is known, or measured now, of which that of rank 0 counts; kept if it is ``lasting``."""
    known = measurements.load_numbers(kind, key, count) if over.rank == 0 else None
    known = agreement.from_rank_0(over, known)
    if known is None:
        known = agreement.from_rank_0(over, measure())
        if over.rank == 0 and lasting:
            measurements.save_numbers(kind, key, tuple(known))
    return tuple(known)


def key_of_machines(over: World) -> str:
    """What measurements of steps of these ranks are known by."""
    return measurements.key_of(f"{machine()} {key_of_ranks(over)}")


def _steps(over: World, call: Call) -> tuple[float, float, float]:
    """Seconds of a step, of an action, and of a message."""
    stages = next((n for n in range(2, over.size + 1) if over.size % n == 0), 1)
    few, many = ([_pipeline(n, m) for n in sorted({1, stages})] for m in (_FEW, _MANY))
    model = _nothing(max(stages, 2))
    fits = [_fit(over, call, model, way) for way in (None, *few, *many)]
    times = [[fit() for fit in fits] for _ in range(_ROUNDS + 1)][1:]  # the first ones trace
    step, *parts = map(median, zip(*times, strict=True))
    few_alone, few_apart, alone, apart = parts[0], parts[len(few) - 1], parts[len(few)], parts[-1]
    action = max(0.0, alone - few_alone) / (_MANY - _FEW) / 2
    waits = max(0.0, (apart - few_apart) / (_MANY - _FEW) - 2 * action)
    return step, action, waits * stages / (2 * (stages - 1)) if stages > 1 else 0.0


def _pipeline(stages: int, micro_batches: int) -> Pipeline:
    """Of a model of :func:`_nothing`, whose layers are not measured for it."""
    begins = tuple(f"{_LAYER}_{n}" for n in range(1, stages))
    return Pipeline(stages, micro_batches=micro_batches, cut_at=begins)


def _nothing(layers: int) -> keras.Model:
    """A model in which next to nothing is done. Nothing is drawn for it, and it has names of its
    own: what a person makes gets those numbers and names that it would get without."""
    hidden = [
        keras.layers.Dense(1, kernel_initializer="zeros", dtype="float32", name=f"{_LAYER}_{n}")
        for n in range(layers)
    ]
    inputs = keras.Input((1,), dtype="float32", name=_LAYER)
    model = keras.Sequential([inputs, *hidden], name="tnt_nothing_at_all")
    model.compile(keras.optimizers.SGD(name="tnt_no_step"), "mean_squared_error")
    return model


def _fit(
    over: World, call: Call, model: keras.Model, pipeline: Pipeline | None
) -> Callable[[], float]:
    """What fits it, and gives seconds of the median step, on rank 0."""
    frames: list[Any] = []
    options = FitOptions(pipeline=pipeline)
    session = Session(over, options, frames.append, quiet=True, can_be_ended=False)
    batch = over.size * _MANY
    x = np.zeros((_STEPS * batch, 1), "float32")

    def run() -> float:
        call(session, "fit", model, x, x, batch_size=batch, verbose=0, shuffle=False)
        return frames[-1]["step_s"] if frames else 0.0

    return run


def _of_optimizer(over: World, optimizer: Any) -> tuple[float, ...]:
    """Seconds for a weight, and for a number in it. One that cannot be made again from its config
    is taken to be Adam."""
    if optimizer is None:
        return 0.0, 0.0
    like = made_anew(optimizer)
    config = like.get_config() | {"name": ""}  # Keras counts names up
    key = measurements.key_of(f"{machine()} {over.size} {type(like)} {config}")
    return _kept(over, "optimizers", key, 2, lambda: _updates(over, like))


def _updates(over: World, like: keras.optimizers.Optimizer) -> tuple[float, float]:
    small = [(1,)]
    sizes: list[Collection[tuple[int]]] = [small, (1 + _WEIGHTS) * small, [(_NUMBERS,)]]
    one, many, large = (
        float(_together(over, _update(made_anew(like), shapes)).max()) for shapes in sizes
    )
    return max(0.0, many - one) / _WEIGHTS, max(0.0, large - one) / _NUMBERS


def _update(optimizer: Any, shapes: Collection[tuple[int]]) -> Callable[[], Any]:
    variables = [
        keras.Variable(np.zeros(s, "float32"), name=f"tnt_{n}") for n, s in enumerate(shapes)
    ]
    optimizer.build(variables)
    gradients = [tf.zeros(v.shape) for v in variables]
    return tf.function(lambda: optimizer.apply(gradients))


def _together(over: World, run: Callable[[], Any]) -> np.ndarray:
    """Seconds of a run on each rank, of all at the same time."""
    over.barrier()
    return over.allgather(np.array([median_s(run, _LONG_S)])).ravel()


def _key_of_model(over: World, model: keras.Model, graph: Graph, rows: int) -> str:
    learning = trained_values(graph)
    each = [key_of(call, graph, learning, max(1, rows)) for call in graph.calls]
    trained = f"{wiring_of(graph)} {type(getattr(model, 'optimizer', None))}"
    return measurements.key_of(f"{key_of_machines(over)} {each} {trained}")


def _busy(
    over: World, model: keras.Model, graph: Graph, rows: int, key: str, lasting: bool
) -> tuple[float, tuple[float, ...]]:
    """How many times as long the layers of a model take on the slowest rank while all ranks run
    them as on rank 0 alone, and how fast each rank is then; 1, and nothing, where a model is too
    large for that, or has weights that no rank has yet."""
    if over.size == 1 or not rows or not all(map(is_here, model.variables)):
        return 1.0, ()

    @functools.cache
    def measured() -> tuple[float, ...]:
        with unchanged(model):
            run = functools.partial(whole_run(graph, trained_values(graph), rows), "FB")
            busy, of_ranks = [], []
            for _ in range(_ROUNDS):
                alone = median_s(run, _LONG_S) if over.rank == 0 else 1.0  # the others wait
                of_ranks.append(_together(over, run))
                busy.append(float(of_ranks[-1].max()) / alone)
        speeds = 1 / np.min(of_ranks, 0)  # what else goes on there makes a rank no slower
        return max(1.0, median(busy)), *(speeds / speeds.max()).tolist()

    (busy,) = _kept(over, BUSY, key, 1, lambda: measured()[:1], lasting)
    return busy, _kept(over, _SPEEDS, key, over.size, lambda: measured()[1:], lasting)
