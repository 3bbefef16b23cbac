"""fit, evaluate, predict and their ``*_on_batch`` over all ranks.

Each function takes the session, the model, Keras's own method, and Keras's arguments. The loop over
epochs and steps is Keras's; what changes is the input (this rank's slices), the functions it calls
each step, and where callbacks run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend as keras_backend
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.utils.python_utils import pythonify_logs

from tnt_notebook.errors import ModelError
from tnt_notebook.parallel import agreement
from tnt_notebook.parallel.callbacks import shared_callbacks
from tnt_notebook.parallel.data import cut, sharded
from tnt_notebook.parallel.data.adapt import Sharded, unpack
from tnt_notebook.parallel.progress import Progress

if TYPE_CHECKING:
    from tnt_notebook.parallel.session import Session

Method = Callable[..., Any]


@dataclass
class Run:
    """One finished call of ``fit``, ``evaluate`` or ``predict``."""

    kind: str
    model: keras.Model
    history: dict[str, list[float]] = field(default_factory=dict)
    stopped: bool = False


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
    over = session.over
    _check_compiled(model, "fit")
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
            (x, y, sample_weight), validation_split=validation_split
        )
    train = sharded(
        over, x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight
    )
    validation = None
    if validation_data is not None:
        validation = sharded(
            over,
            *unpack(validation_data),
            batch_size=validation_batch_size or batch_size,
            steps_per_epoch=validation_steps,
        )
    _build(model, train.element)
    steps = steps_per_epoch or train.steps
    agreement.agree(over, {"call": "fit", "epochs": epochs, "steps": steps, **_facts(model)})
    agreement.share_state(over, _state(model))

    progress = Progress(over, session.report, "fit", epochs, steps)
    with _running(session, model, progress):
        history = keras_fit(
            model,
            _Adapter(train),
            epochs=epochs,
            verbose=0,
            callbacks=_callbacks(session, model, callbacks, verbose, progress, epochs, steps),
            validation_data=validation and _Adapter(validation),
            shuffle=False,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_freq=validation_freq,
        )
    agreement.check_identical(over, _state(model), "after training")
    session.runs.append(Run("fit", model, dict(history.history), stopped=progress.stopped))
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
    _check_compiled(model, "evaluate")
    data = sharded(session.over, x, y, sample_weight, batch_size, steps)
    logs = _without_gradients(
        session, model, keras_evaluate, "evaluate", data, verbose, steps, callbacks,
        return_dict=True,
    )
    session.runs.append(Run("evaluate", model, {k: [v] for k, v in logs.items()}))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


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
    data = sharded(session.over, x, batch_size=batch_size, steps_per_epoch=steps)
    outputs = _without_gradients(
        session, model, keras_predict, "predict", data, verbose, steps, callbacks
    )
    session.runs.append(Run("predict", model))
    return outputs


def train_on_batch(
    session: Session,
    model: keras.Model,
    _: Method,
    *,
    x: Any,
    y: Any,
    sample_weight: Any,
    class_weight: Any,
    return_dict: bool,
) -> Any:
    """``keras.Model.train_on_batch`` on one global batch."""
    if class_weight is not None:
        if sample_weight is not None:
            raise ValueError("train_on_batch takes sample_weight or class_weight, not both.")
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    logs = _on_batch(session, model, "train_on_batch", (x, y, sample_weight))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def test_on_batch(
    session: Session,
    model: keras.Model,
    _: Method,
    *,
    x: Any,
    y: Any,
    sample_weight: Any,
    return_dict: bool,
) -> Any:
    """``keras.Model.test_on_batch`` on one global batch."""
    logs = _on_batch(session, model, "test_on_batch", (x, y, sample_weight))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def predict_on_batch(session: Session, model: keras.Model, _: Method, *, x: Any) -> Any:
    """``keras.Model.predict_on_batch`` on one global batch."""
    batch = cut((_tensors(x),), session.over)
    _begin(session, model, "predict_on_batch", batch[0])
    return keras.tree.map_structure(
        keras.ops.convert_to_numpy, model.predict_function([batch])
    )


def _on_batch(session: Session, model: keras.Model, call: str, data: Any) -> dict[str, float]:
    _check_compiled(model, call)
    batch = cut(_tensors(data), session.over)
    _begin(session, model, call, batch[0])
    model.reset_metrics()
    function = model.train_function if call == "train_on_batch" else model.test_function
    return pythonify_logs(function(iter([batch])))


def _begin(session: Session, model: keras.Model, call: str, batch: Any) -> None:
    """Before the first batch of a model: the same state and functions everywhere."""
    first = id(model) not in session.functions
    if first:
        element = keras.tree.map_structure(_spec, batch)
        _build(model, element, with_loss=call != "predict_on_batch")
        agreement.agree(session.over, {"call": call, **_facts(model)})
        agreement.share_state(session.over, _state(model))
        session.runs.append(Run(call, model))
    session.functions_of(model)


def _without_gradients(
    session: Session,
    model: keras.Model,
    keras_method: Method,
    kind: Any,
    data: Sharded,
    verbose: Any,
    steps: int | None,
    callbacks: Any,
    **more: Any,
) -> Any:
    over = session.over
    _build(model, data.element, with_loss=kind == "evaluate")
    steps_known = steps or data.steps
    agreement.agree(over, {"call": kind, "steps": steps_known, **_facts(model)})
    agreement.share_state(over, _state(model))
    progress = Progress(over, session.report, kind, 1, steps_known)
    with _running(session, model, progress):
        return keras_method(
            model,
            _Adapter(data),
            steps=steps,
            verbose=0,
            callbacks=_callbacks(session, model, callbacks, verbose, progress, 1, steps_known),
            **more,
        )


@contextlib.contextmanager
def _running(session: Session, model: keras.Model, progress: Progress) -> Iterator[None]:
    functions = session.functions_of(model)
    session.progress = progress
    try:
        with progress.run():
            yield
    finally:
        session.progress = None
        functions.forget_votes()


def _callbacks(
    session: Session,
    model: keras.Model,
    callbacks: Any,
    verbose: Any,
    progress: Progress,
    epochs: int,
    steps: int | None,
) -> keras.callbacks.CallbackList:
    def watch(hook: str, number: int, logs: dict[str, Any]) -> None:
        progress.watch(hook, number, logs)
        if hook == "on_epoch_end":
            agreement.check_identical(
                session.over, _state(model), f"at the end of epoch {number + 1}"
            )

    return shared_callbacks(
        session.over,
        model,
        callbacks,
        state=lambda: _state(model),
        watch=watch,
        verbose=0 if session.quiet and verbose == "auto" else verbose,
        epochs=epochs,
        steps=steps,
        alone=session.on_this_rank_alone,
    )


class _Adapter(DataAdapter):
    """Sharded input as Keras's loop wants it."""

    def __init__(self, data: Sharded) -> None:
        self._data = data

    def get_tf_dataset(self) -> tf.data.Dataset:
        return self._data.dataset

    @property
    def num_batches(self) -> int | None:
        return self._data.steps

    @property
    def batch_size(self) -> int | None:
        return self._data.adapter.batch_size

    @property
    def has_partial_batch(self) -> bool | None:
        return self._data.adapter.has_partial_batch

    @property
    def partial_batch_size(self) -> int | None:
        return self._data.adapter.partial_batch_size

    def on_epoch_begin(self) -> None:
        self._data.adapter.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._data.adapter.on_epoch_end()


def _check_compiled(model: keras.Model, call: str) -> None:
    if not model.compiled:
        raise ModelError(
            f"The model is not compiled, so {call} has no loss and no optimizer: call "
            "model.compile(optimizer, loss) before it."
        )


def _build(model: keras.Model, element: Any, with_loss: bool = True) -> None:
    """Creates all variables now, so that they can be made the same on all ranks.

    Args:
        element: the structure of a batch, in tf.TensorSpec.
        with_loss: whether losses, metrics and the optimizer will be used as well.
    """
    if _has_own_call(model):
        try:
            if with_loss:
                model._symbolic_build(data_batch=element)
            elif not all(layer.built for layer in model._flatten_layers()):
                keras_backend.compute_output_spec(model, _symbolic(unpack(element)[0]))
        except Exception as error:
            raise ModelError(
                "The model is not built, and could not be built from the shapes of the input "
                f"({type(error).__name__}: {error}). Call it once on a batch before training, or "
                "give it a keras.Input."
            ) from error
    unbuilt = [
        layer.name for layer in model._flatten_layers(include_self=False) if not layer.built
    ]
    if unbuilt:
        raise ModelError(
            f"Layers {', '.join(unbuilt)} are not built, so their weights cannot be shared between "
            "the ranks. Call the model, or the part of it that is trained, once on a batch before."
        )
    for optimizer in _optimizers(model):
        if not optimizer.built and optimizer is model.optimizer:
            optimizer.build(model.trainable_variables)


def _has_own_call(model: keras.Model) -> bool:
    """A model that only has a train_step (a GAN, say) cannot be called, and so not be built."""
    return type(model).call is not keras.Layer.call and type(model).call is not keras.Model.call


def _symbolic(element: Any) -> Any:
    return keras.tree.map_structure(
        lambda spec: spec and keras.KerasTensor(spec.shape, spec.dtype.name), element
    )


def _optimizers(model: keras.Model) -> list[BaseOptimizer]:
    """The optimizers that a model holds: compiled, or as attributes (GANs have two)."""
    found = [model.optimizer] if isinstance(model.optimizer, BaseOptimizer) else []
    for value in vars(model).values():
        if isinstance(value, BaseOptimizer) and all(value is not other for other in found):
            found.append(value)
    return found


def _state(model: keras.Model) -> list[keras.Variable]:
    """Everything that must be the same on all ranks: weights, seeds, state of optimizers."""
    unique: dict[int, keras.Variable] = {id(v): v for v in model.variables}
    for optimizer in _optimizers(model):
        unique.update({id(v): v for v in optimizer.variables})
    for metric in model.metrics_variables:
        unique.pop(id(metric), None)
    return list(unique.values())


def _facts(model: keras.Model) -> dict[str, Any]:
    """What tells that two ranks train the same model in the same way."""
    return {
        "model": type(model).__name__,
        "layers": [type(layer).__name__ for layer in model._flatten_layers()],
        "variables": agreement.layout(model.variables),
        "optimizers": [type(optimizer).__name__ for optimizer in _optimizers(model)],
        "trainable variables": len(model.trainable_variables),
    }


def _spec(leaf: Any) -> tf.TensorSpec | None:
    return None if leaf is None else tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)


def _tensors(data: Any) -> Any:
    """Arrays as tensors; float64 arrays become floatx, as Keras's adapters do."""

    def convert(leaf: Any) -> Any:
        if leaf is None or tf.is_tensor(leaf):
            return leaf
        array = np.asarray(leaf)
        return tf.convert_to_tensor(
            array, dtype=keras.config.floatx() if array.dtype == np.float64 else None
        )

    return keras.tree.map_structure(convert, data)
