"""fit, evaluate and predict over all ranks.

Each function takes the session, the model, Keras's own method, and Keras's arguments. The loop over
epochs and steps is Keras's; what changes is the input (this rank's slices), the functions it calls
each step, and where callbacks run.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tnt_notebook.comm import channels
from tnt_notebook.keras.adapters import without_validation_split
from tnt_notebook.keras.lazy_variables import is_here
from tnt_notebook.keras.step_functions import in_order
from tnt_notebook.parallel.consistency import agreement, seeds
from tnt_notebook.parallel.consistency.model_state import state_of
from tnt_notebook.parallel.data import Sharded, sharded, unpack
from tnt_notebook.parallel.data.readers import damage
from tnt_notebook.parallel.data.skipped import skipped_by_all
from tnt_notebook.parallel.exchange.named import described
from tnt_notebook.parallel.observe import activity
from tnt_notebook.parallel.observe.flops import forward_flops
from tnt_notebook.parallel.observe.progress import Progress
from tnt_notebook.parallel.observe.setup import setup_of
from tnt_notebook.parallel.observe.step_sampler import StepSampler
from tnt_notebook.parallel.step.logs import check_same_samples
from tnt_notebook.parallel.training import tracking
from tnt_notebook.parallel.training.callbacks import SharedCallbacks
from tnt_notebook.parallel.training.compiled_functions import DistributedFunctions
from tnt_notebook.parallel.training.fit_checkpoints import FitCheckpoints
from tnt_notebook.parallel.training.prepare import prepare
from tnt_notebook.parallel.training.promised import promised
from tnt_notebook.parallel.training.session import Run, Session
from tnt_notebook.telemetry import Phase, activities

Method = Callable[..., Any]


def fit(
    session: Session,
    model: keras.Model,
    keras_fit: Method,
    *,
    x: Any,
    y: Any,
    batch_size: int | None,
    epochs: int,
    verbose: Any,
    callbacks: Any,
    validation_split: float,
    validation_data: Any,
    shuffle: Any,
    class_weight: Any,
    sample_weight: Any,
    initial_epoch: int,
    steps_per_epoch: int | None,
    validation_steps: int | None,
    validation_batch_size: int | None,
    validation_freq: Any,
) -> keras.callbacks.History:
    """``keras.Model.fit`` over all ranks; ``batch_size`` is that of the global batch."""
    batch_size = session.fit_as.batch_size(x, batch_size)
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = without_validation_split(
            (x, y, sample_weight), validation_split
        )
    train = sharded(
        session.replica, x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight,
        not session.in_blocks,
    )  # fmt: skip
    validation = None
    if validation_data is not None:
        validation = sharded(
            session.replica, *unpack(validation_data),
            batch_size=validation_batch_size or batch_size, steps_per_epoch=validation_steps,
            copies=not session.in_blocks,
        )  # fmt: skip
    epochs, steps_per_epoch = session.fit_as.length(
        epochs, initial_epoch, steps_per_epoch, steps_per_epoch or train.steps
    )
    steps = steps_per_epoch or train.steps
    prepare(session, model, "fit", train.element, epochs=epochs, steps=steps)
    _check_same(session, train, validation)
    functions = session.functions_of(model, train.batch_size)
    train = functions.placement.as_needed(train)
    validation = validation and functions.placement.as_needed(validation)
    checkpoints, journal = None, contextlib.nullcontext()
    if session.checkpoints is not None:
        checkpoints = FitCheckpoints(session.checkpoints, functions, train, validation, epochs)
        past = checkpoints.past()
        if past is not None:
            session.gather(model)
            session.ran(Run("fit", model, dict(past[0].history), past[1]))
            return past[0]
        journal = checkpoints.journal.kept_by()
        if checkpoints.start is not None:
            initial_epoch = checkpoints.start.place.epoch
    running = _running(
        session, model, "fit", train, callbacks, verbose, epochs, steps, checkpoints, validation
    )
    with running as (progress, shared), functions.weights.finalized(), journal:
        history = keras_fit(
            model, train, epochs=epochs, verbose=0, callbacks=shared, validation_data=validation,
            shuffle=False, initial_epoch=initial_epoch, steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps, validation_freq=validation_freq,
        )  # fmt: skip
    session.gather(model)
    agreement.check_identical(session.over, state_of(model), "after training")
    if checkpoints is not None:
        checkpoints.end(progress.stopped)
    session.ran(Run("fit", model, dict(history.history), progress.stopped, progress.diverged))
    return history


def evaluate(
    session: Session,
    model: keras.Model,
    keras_evaluate: Method,
    *,
    x: Any,
    y: Any,
    batch_size: int | None,
    verbose: Any,
    sample_weight: Any,
    steps: int | None,
    callbacks: Any,
    return_dict: bool,
) -> Any:
    """``keras.Model.evaluate``; every rank evaluates its slices, and all get the whole result."""
    copies = not session.in_blocks
    data = sharded(session.replica, x, y, sample_weight, batch_size, steps, copies=copies)
    given = (data, verbose, steps, callbacks)
    logs, stopped = _without_gradients(
        session, model, keras_evaluate, "evaluate", *given, return_dict=True
    )
    session.ran(Run("evaluate", model, {k: [v] for k, v in logs.items()}, stopped))
    return logs if return_dict else in_order(model, logs)


def predict(
    session: Session,
    model: keras.Model,
    keras_predict: Method,
    *,
    x: Any,
    batch_size: int | None,
    verbose: Any,
    steps: int | None,
    callbacks: Any,
) -> Any:
    """``keras.Model.predict``; every rank computes its slices, and all get all outputs."""
    data = sharded(
        session.replica, x, batch_size=batch_size, steps_per_epoch=steps,
        copies=not session.in_blocks,
    )  # fmt: skip
    outputs, stopped = _without_gradients(
        session, model, keras_predict, "predict", data, verbose, steps, callbacks
    )
    session.ran(Run("predict", model, stopped=stopped))
    return outputs


def _without_gradients(
    session: Session,
    model: keras.Model,
    keras_method: Method,
    phase: Any,
    data: Sharded,
    verbose: Any,
    steps: int | None,
    callbacks: Any,
    **more: Any,
) -> tuple[Any, bool]:
    """What Keras's method gives, and whether it was stopped."""
    steps_known = steps or data.steps
    prepare(session, model, phase, data.element, steps=steps_known)
    _check_same(session, data)
    functions = session.functions_of(model, data.batch_size)
    running = _running(session, model, phase, data, callbacks, verbose, 1, steps_known)
    with running as (progress, shared):
        data = functions.placement.as_needed(data)
        result = keras_method(model, data, steps=steps, verbose=0, callbacks=shared, **more)
    session.gather(model)
    return result, progress.stopped


def _check_same(session: Session, *given: Sharded | None) -> None:
    """Raises DifferentDataError where ranks were given different samples, as far as that is known
    before they are read. Collective."""
    if session.over.size > 1:
        marks = ["" if data is None else data.fingerprint() for data in given]
        check_same_samples(session.over, "; ".join(marks))


@contextlib.contextmanager
def _running(
    session: Session,
    model: keras.Model,
    phase: Phase,
    data: Sharded,
    callbacks: Any,
    verbose: Any,
    epochs: int,
    steps: int | None,
    checkpoints: FitCheckpoints | None = None,
    validation: Sharded | None = None,
) -> Iterator[tuple[Progress, SharedCallbacks]]:
    """Around Keras's loop, of a model whose functions are in place."""
    by_python = any(each.is_made_by_python for each in (data, validation) if each is not None)
    functions = session.functions[id(model)]
    progress = _progress(session, model, functions, phase, data, epochs, steps)
    start = checkpoints and checkpoints.start
    if start:
        state = start.state
        progress.resume(state.epochs, state.history, start.place.epoch, start.place.step)
    session.progress, session.fit_checkpoints = progress, checkpoints

    def watch(hook: str, number: int, logs: dict[str, Any]) -> None:
        activity.follow(phase, hook)
        if checkpoints is not None and session.checkpoints is not None:
            checkpoints.watch(hook, number, logs)
            progress.written(session.checkpoints.written)
        progress.watch(hook, number, logs)
        if hook in ("on_epoch_begin", "on_test_begin", "on_predict_begin"):
            functions.epoch_begins()
        if hook == "on_epoch_end":
            when = f"at the end of epoch {number + 1}"
            functions.weights.check_identical(when)

    activities.begin("trace")
    try:
        with progress.run():
            shared = SharedCallbacks(
                session.over, model, callbacks, state=lambda: state_of(model),
                captured=functions.captured,
                gather=lambda: session.gather(model, [0]),
                gathered_when_used=functions.weights.gathered_when_used, settle=functions.settle,
                watch=watch, alone=session.on_this_rank_alone,
                random=seeds.state_of_operations if by_python else seeds.state,
                resume=checkpoints.resume if checkpoints and start else None,
                verbose=0 if session.quiet and verbose == "auto" else verbose, epochs=epochs,
                steps=steps,
            )  # fmt: skip
            functions.in_every_step(shared.looks_at_batches)
            if checkpoints is not None:
                checkpoints.callbacks = shared.callbacks
            damage.begin_run()
            yield progress, shared
            progress.sample(whole_run=True)
            progress.skipped(skipped_by_all(session.over))
    finally:
        activities.begin("build")
        session.progress = session.fit_checkpoints = None
        functions.in_every_step(True)
        functions.forget_votes()


def _progress(
    session: Session,
    model: keras.Model,
    functions: DistributedFunctions,
    phase: Phase,
    data: Sharded,
    epochs: int,
    steps: int | None,
) -> Progress:
    over, stages = session.over, functions.placement.stages
    if stages is not None:
        sampler = StepSampler(
            over, phase, stages.lines, channels.GRADIENTS.first, stages.schedule, stages.described,
            functions.exchanges,
        )  # fmt: skip
    else:
        each = [(rank,) for rank in range(over.size)]
        sampler = StepSampler(over, phase, each, exchanges=functions.exchanges)
    trained = sum(math.prod(v.shape) for v in model.trainable_variables)
    flops = forward_flops(model) if session.report is not None and over.rank == 0 else None
    if flops is not None and phase == "fit":
        flops *= 3
    plan = promised(session, phase, data)
    return Progress(
        over, session.replicas,
        tracking.report_of(session, model, phase, data.batch_size, epochs, steps),
        phase, epochs, steps, sampler, flops, per_execution=model.steps_per_execution,
        exchange=described(functions.setting.exchange) if phase == "fit" else "",
        setup=setup_of(
            over, 1 if stages is None else len(stages.lines[0]), functions.setting.exchange,
            data.adapter, model.steps_per_execution, plan.promise),
        input=str(data.reading), plan=plan.words, seen=functions.seen if phase == "fit" else str,
        weights=lambda: filter(is_here, model.trainable_variables),
        late_logs=functions.placement.late is not None, learn=plan.learn,
        stops_on_nan=session.options.on_nan == "stop",
        by_allreduce=0.0 if stages is not None else 8 * trained * (over.size - 1) / over.size,
    )  # fmt: skip
