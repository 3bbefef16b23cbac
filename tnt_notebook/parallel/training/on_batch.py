"""train_on_batch, test_on_batch and predict_on_batch over all ranks: each takes a global batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import stop
from tnt_notebook.errors import DataError, StoppedError
from tnt_notebook.keras.adapters import weights_of_classes
from tnt_notebook.keras.step_functions import in_order, in_python, resets_metrics
from tnt_notebook.parallel.data import cut, samples_of
from tnt_notebook.parallel.training.prepare import prepare
from tnt_notebook.parallel.training.session import Run, Session


def train_on_batch(
    session: Session,
    model: keras.Model,
    keras_method: Callable[..., Any],
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
        sample_weight = weights_of_classes(y, class_weight)
    logs = _on_batch(session, model, keras_method, (x, y, sample_weight))
    session.functions[id(model)].settle()  # no epoch will end that does
    session.gather(model)
    return logs if return_dict else in_order(model, logs)


def test_on_batch(
    session: Session,
    model: keras.Model,
    keras_method: Callable[..., Any],
    *,
    x: Any,
    y: Any,
    sample_weight: Any,
    return_dict: bool,
) -> Any:
    """``keras.Model.test_on_batch`` on one global batch."""
    logs = _on_batch(session, model, keras_method, (x, y, sample_weight))
    session.gather(model)
    return logs if return_dict else in_order(model, logs)


def predict_on_batch(session: Session, model: keras.Model, _: Callable[..., Any], *, x: Any) -> Any:
    """``keras.Model.predict_on_batch`` on one global batch."""
    batch = _begin(session, model, "predict_on_batch", (_tensors(x),))
    outputs = model.predict_function([batch])
    session.gather(model)
    return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)


def _on_batch(
    session: Session, model: keras.Model, keras_method: Callable[..., Any], data: Any
) -> dict[str, float]:
    call = keras_method.__name__
    batch = _begin(session, model, call, _tensors(data))
    if resets_metrics(keras_method):
        model.reset_metrics()
    function = model.train_function if call == "train_on_batch" else model.test_function
    return in_python(function(iter([batch])))


def _begin(session: Session, model: keras.Model, call: str, batch: Any) -> Any:
    """Before the first batch of a model: the same state and functions everywhere. Gives what these
    take: this rank's slice and Share; on one rank the batch itself, on one that reads nothing a
    number."""
    if stop.agreed.is_set():
        raise StoppedError(f"{call} was stopped.")
    if session.replica and int(samples_of(batch)) == 0:
        raise DataError(f"{call} was given a batch without samples, which ranks cannot share.")
    if id(model) not in session.functions:
        prepare(session, model, call, keras.tree.map_structure(_spec, batch))
        session.ran(Run(call, model))
    if not session.functions_of(model).placement.reads:
        return tf.constant(0, tf.int64)
    return cut(batch, session.replica) if session.replica else batch


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
