"""The rest of the Keras interface: single batches, prediction, random layers, stopping, frames."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.models import MODELS, SAMPLES, classification, mlp, two_inputs
from tests.parallel.outcome import close, same_bits
from tnt_notebook import comm
from tnt_notebook.comm import stop


def on_batches(distributed: bool) -> Any:
    keras.utils.set_random_seed(1)
    model = mlp()
    model = tnt.Model(model) if distributed else model
    x, y = classification()
    weights = np.linspace(0, 1, SAMPLES)
    told = []
    for begin in (0, 16, 32, 48):
        part = slice(begin, begin + 16)
        told += model.train_on_batch(x[part], y[part], sample_weight=weights[part])
        told += model.train_on_batch(x[part], y[part], class_weight={0: 1, 1: 3, 2: 1})
        told += model.test_on_batch(x[part], y[part], return_dict=True).values()
    return told, model.predict_on_batch(x), model.get_weights()


@pytest.mark.core
@pytest.mark.parametrize("n", (1, 2, 4))
def test_single_batches(ranks, n):
    (alone,) = ranks.run(1, on_batches, False)
    for ours in ranks.run(n, on_batches, True):
        close(ours, alone)


def predict_all(distributed: bool) -> Any:
    keras.utils.set_random_seed(1)
    model = MODELS["several inputs and outputs"][0]()
    x, _ = two_inputs()
    model = tnt.Model(model) if distributed else model
    return [
        model.predict(x, verbose=0),
        model.predict([x[0][:2], x[1][:2]], verbose=0),
        model.predict(x, batch_size=7, steps=3, verbose=0),
    ]


@pytest.mark.core
@pytest.mark.parametrize("n", (2, 4))
def test_predictions_have_the_order_of_the_input(ranks, n):
    (alone,) = ranks.run(1, predict_all, False)
    for ours in ranks.run(n, predict_all, True):
        close(ours, alone)


class Masks(keras.layers.Layer):
    """Keeps the last mask that its dropout drew."""

    def build(self, shape: Any) -> None:
        self.dropout = keras.layers.Dropout(0.5, seed=3)
        self.kept = tf.Variable(np.zeros(8, "float32"), trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        dropped = self.dropout(x, training=training)
        if training:
            self.kept.assign(dropped[0])
        return dropped


def draw_masks(distributed: bool) -> Any:
    keras.utils.set_random_seed(1)
    masks = Masks()
    model = keras.Sequential([keras.Input((8,)), masks, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model = tnt.Model(model) if distributed else model
    model.fit(np.ones((16, 8), "float32"), np.ones(16), batch_size=16, epochs=1, verbose=0)
    return masks.kept.numpy(), np.asarray(masks.dropout.seed_generator.state.value)


@pytest.mark.core
def test_random_layers_draw_what_one_process_draws(ranks):
    (alone,) = ranks.run(1, draw_masks, False)
    for ours in ranks.run(4, draw_masks, True):
        same_bits(ours, alone)


def local_batch_norm() -> Any:
    keras.utils.set_random_seed(1)
    norm = keras.layers.BatchNormalization(momentum=0.5)
    model = keras.Sequential([keras.Input((8,)), norm, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = classification()[0]
    tnt.Model(model).fit(x, x[:, 0], batch_size=16, epochs=2, verbose=0, shuffle=False)
    return np.asarray(norm.moving_mean.value), np.asarray(norm.moving_variance.value)


@pytest.mark.core
def test_batch_norm_statistics_are_the_same_on_all_ranks_and_finite_without_data(ranks):
    ((plain_mean, _),) = ranks.run(1, local_batch_norm)
    results = ranks.run(4, local_batch_norm)
    for mean, variance in results:
        # The mean of the slices' means, weighted by their sizes, is the mean of the batch.
        np.testing.assert_allclose(mean, plain_mean, 1e-4, 1e-5)
        assert np.isfinite(variance).all()
        np.testing.assert_array_equal(variance, results[0][1])


def fit_on_nothing() -> Any:
    x, y = classification()
    history = tnt.Model(mlp()).fit(x[:0], y[:0], epochs=2, verbose=0)
    return history.epoch, history.history


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_the_history_of_no_data_is_the_same_on_all_ranks(ranks):
    (alone,) = ranks.run(1, fit_on_nothing)
    assert ranks.run(2, fit_on_nothing) == [alone] * 2


class RequestsStop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.model.optimizer.iterations == 6:
            stop.end.set()


def stop_in_between() -> Any:
    model = mlp()
    with tnt.distributed() as session:
        model.fit(*classification(), batch_size=16, epochs=50, callbacks=[RequestsStop()])
    again = int(model.optimizer.iterations)
    with tnt.distributed():
        model.fit(*classification(), batch_size=16, epochs=1)
    return again, int(model.optimizer.iterations), session.runs[0].stopped


def test_a_stop_by_one_rank_ends_all_after_the_same_step_and_not_the_next_run(ranks):
    for first, second, stopped in ranks.run(3, stop_in_between):
        assert first == 7  # the vote is asked for in the step after it was given
        assert second == first + 4
        assert stopped


def report_frames() -> Any:
    frames: list[dict] = []
    model = mlp()
    x, y = classification()
    with tnt.distributed(report=frames.append) as session:
        model.fit(x, y, batch_size=16, epochs=3, validation_data=(x, y))
        model.evaluate(x, y)
        model.predict(x)
    return frames, [run.kind for run in session.runs], session.runs[0].history


def test_frames_are_reported_on_rank_0_and_tell_the_history(ranks):
    (frames, kinds, history), (none, *_) = ranks.run(2, report_frames)
    assert not none and kinds == ["fit", "evaluate", "predict"]
    last = [f for f in frames if f["phase"] == "fit"][-1]
    assert last["state"] == "finished" and last["samples"] == [75, 75]
    for name, values in history.items():
        np.testing.assert_allclose([row[name] for row in last["rows"]], values)
    assert frames[-1]["phase"] == "predict" and frames[-1]["samples"] == [25, 25]


def wrapped_in_a_cell() -> list[str]:
    model = tnt.Model(mlp())
    before = comm.world().timeout_s
    with tnt.distributed(timeout=30) as session:
        model.fit(*classification(), verbose=0)
    assert comm.world().timeout_s == before != 30
    return [run.kind for run in session.runs]


def test_a_wrapped_model_in_a_fit_cell_belongs_to_the_cell(ranks):
    assert ranks.run(2, wrapped_in_a_cell) == [["fit"], ["fit"]]


def model_is_ones_own() -> None:
    model = mlp()
    before = dict(vars(model))
    with tnt.distributed():
        model.fit(*classification(), verbose=0)
    for name in ("train_step", "test_step", "predict_step", "_get_metrics_result_or_logs"):
        assert name not in vars(model) and name not in before
    assert model.jit_compile == before["_jit_compile"] or before["_jit_compile"] is None
    assert comm.rank() != 0 or model.evaluate(*classification(), verbose=0)  # alone: no hang


@pytest.mark.core
def test_the_model_is_an_ordinary_one_afterwards(ranks):
    ranks.run(2, model_is_ones_own)


def used_beside_its_wrapper() -> Any:
    model, (x, y) = mlp(), classification()
    wrapped = tnt.Model(model)
    wrapped.fit(x, y, batch_size=16, verbose=0)
    traced = wrapped._session.functions[id(model)]._ours["train_function"]
    if comm.rank() == 0:  # alone: no hang
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
        copy.compile(keras.optimizers.SGD(0.1), model.loss)
        copy.fit(x, y, verbose=0)
        assert np.isfinite(model.evaluate(x, y, verbose=0)).all()
        assert model.predict(x, verbose=0).shape == (SAMPLES, 3)
    wrapped.fit(x, y, batch_size=16, verbose=0)
    assert wrapped._session.functions[id(model)]._ours["train_function"] is traced
    model.compile("sgd", "mse", metrics=["mae"])
    model.fit(x, np.eye(3)[y], verbose=0)  # on each rank, the same
    return wrapped.fit(x, np.eye(3)[y], batch_size=16, verbose=0).history


def run_saves(folder: str) -> int:
    """Saves a model and its weights, and reads both, often enough to collide."""
    model = tnt.Model(
        keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(256) for _ in range(2))])
    )
    for _ in range(8):
        model.save(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        keras.models.load_model(f"{folder}/model.keras")
        model.load_weights(f"{folder}/model.weights.h5")
    return len(model.weights)


def test_all_ranks_may_save_to_one_file_at_once(ranks, tmp_path):
    assert ranks.run(4, run_saves, str(tmp_path)) == [4] * 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.keras", "model.weights.h5"]


@pytest.mark.core
def test_between_calls_of_its_wrapper_a_model_is_an_ordinary_one(ranks):
    first, second = ranks.run(2, used_beside_its_wrapper)
    assert first == second


def compiled_anew() -> None:
    model = mlp()
    with tnt.distributed():
        model.fit(*classification(), verbose=0)
        model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
        model.fit(*classification(), verbose=0)
    assert model.jit_compile and model.train_function is None


@pytest.mark.core
def test_a_model_may_be_compiled_between_two_fits(ranks):
    ranks.run(2, compiled_anew)


def different_weights() -> list[np.ndarray]:
    keras.utils.set_random_seed(comm.rank())
    model = mlp()
    tnt.Model(model).predict(classification()[0], verbose=0)
    return model.get_weights()


def test_all_ranks_begin_with_the_weights_of_rank_0(ranks):
    first, *others = ranks.run(3, different_weights)
    for weights in others:
        same_bits(weights, first)


def wrapped() -> str:
    model = tnt.Model(mlp())
    model.optimizer.learning_rate = 0.25
    assert float(model.keras_model.optimizer.learning_rate) == 0.25
    assert model(np.ones((1, 8), "float32")).shape == (1, 3)
    assert tnt.Model(model).keras_model is model.keras_model
    return repr(model)


def test_tnt_model_passes_everything_else_on(ranks):
    assert "on 2 ranks" in ranks.run(2, wrapped)[0]


def models_in_turn() -> tuple[int, list[str]]:
    """How many of several models of a cell are still there when nobody needs them any more."""
    x, y = classification()
    models, kinds = [], []
    with tnt.distributed() as session:
        for _ in range(3):
            model = mlp()
            model.fit(x, y, batch_size=32, verbose=0)
            model.evaluate(x, y, verbose=0)
            models.append(weakref.ref(model))
            kinds = [run.kind for run in session.runs]
        del model
        gc.collect()
        return sum(one() is not None for one in models), kinds


def test_models_of_a_cell_go_when_nobody_needs_them(ranks):
    # The last one is what the cell may be asked for.
    assert ranks.run(2, models_in_turn) == [(1, ["fit", "evaluate"] * 3)] * 2


def two_fits() -> list[str]:
    """A fit in a thread, while another one runs."""
    x, y = classification()
    said, begun, done = [], threading.Event(), threading.Event()
    second = tnt.Model(mlp())

    class Waits(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            begun.set()
            done.wait(60)

    def other() -> None:
        begun.wait(60)
        try:
            second.fit(x, y, verbose=0)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
        done.set()

    alone = comm.rank() > 0  # others have nobody who would call
    thread = threading.Thread(target=done.set if alone else other)
    thread.start()
    tnt.Model(mlp()).fit(x, y, verbose=0, callbacks=[] if alone else [Waits()])
    thread.join()
    second.fit(x, y, verbose=0)  # nothing is left of the one that was refused
    return said


def test_a_second_call_in_a_thread_is_refused(ranks):
    first, second = ranks.run(2, two_fits)
    assert second == [] and len(first) == 1
    assert first[0].startswith("ModelError: fit was called in a thread while another thread")
