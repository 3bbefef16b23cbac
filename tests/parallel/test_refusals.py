"""What cannot work raises before training, on all ranks, and says what to do."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.models import chain, classification, mlp
from tests.parallel.outcome import same_bits
from tnt_notebook import comm
from tnt_notebook.errors import DifferentDataError, TntError


class Unbuildable(keras.Model):
    def call(self, x: Any) -> Any:
        return x[int(keras.ops.convert_to_numpy(x)[0, 0])]


class OfOneLayer(keras.Model):
    units = 1

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(self.units)

    def call(self, x: Any) -> Any:
        return self.dense(x)


class ByHand(OfOneLayer):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x)[:, 0] - tf.cast(y, "float32")))
        for weight, gradient in zip(
            self.trainable_weights, tape.gradient(loss, self.trainable_weights), strict=True
        ):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}


class DependsOnRank(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        counter = self.add_weight(initializer="zeros", trainable=False, name="counter")
        self.counter = tnt.combine(counter, "same")  # which is not so

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.counter.assign_add(comm.rank())
        return x


class Recompiles(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.compile("adam", "mse")


class Holds(keras.layers.Layer):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def call(self, x: Any) -> Any:
        return self.inner(x)


def stateful() -> keras.Model:
    lstm = keras.layers.Bidirectional(keras.layers.LSTM(2, stateful=True))
    return compiled(keras.Sequential([keras.Input(batch_shape=(10, 8, 1)), lstm]))


def fit(model: keras.Model, **more: Any) -> None:
    tnt.Model(model).fit(*classification(), verbose=0, **more)


def fit_with(exchange: str, model: keras.Model) -> None:
    tnt.Model(model, exchange=exchange).fit(*classification(), verbose=0)


def compiled(model: keras.Model) -> keras.Model:
    model.compile("sgd", "mse")
    return model


def fit_on_one_rank_only() -> None:
    model = mlp()
    with tnt.distributed():
        if comm.rank() == 0:
            model.fit(*classification(), verbose=0)


def no_fit() -> None:
    with tnt.distributed():
        mlp()


def different_data() -> None:
    x, y = classification()
    with pytest.raises(DifferentDataError, match=r"Ranks \[1\] got different samples"):
        tnt.Model(mlp()).fit(x + comm.rank(), y, verbose=0)
    x = tf.data.Dataset.from_tensor_slices((x + comm.rank(), y)).batch(16)
    tnt.Model(mlp()).fit(x, verbose=0)


def unbatched() -> None:
    parts = [keras.Input(()), keras.layers.Reshape((1,)), keras.layers.Dense(1)]
    tnt.Model(compiled(keras.Sequential(parts))).fit(tf.data.Dataset.range(5), verbose=0)


def float8() -> None:
    model = compiled(keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)]))
    model.quantize("float8")
    x, y = classification()
    tnt.Model(model).predict(x, verbose=0)
    tnt.Model(model).fit(x, y, verbose=0)


#: What is done, the kind of the error, and words of it.
REFUSED = {
    "not compiled": (
        lambda: fit(keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])),
        "ModelError", "model.compile(",
    ),
    "not buildable": (
        lambda: fit(compiled(Unbuildable())), "ModelError", "call it once on a batch",
    ),
    "different models": (
        lambda: fit(chain(keras.Input((8,)), keras.layers.Dense(3 + comm.rank()))),
        "DisagreementError", "[8, 3]",
    ),
    "different epochs": (
        lambda: fit(mlp(), epochs=1 + comm.rank()),
        "DisagreementError", "epochs is 1 on rank 0, and 2 on rank 1",
    ),
    "fit on one rank only": (
        fit_on_one_rank_only, "DisagreementError", "rank 0: fit, rank 1: reach the end",
    ),
    "no fit": (no_fit, "NothingToDoError", "%%tnt"),
    "different data": (different_data, "DifferentDataError", "set_random_seed"),
    "batch of nothing": (
        lambda: tnt.Model(mlp()).train_on_batch(*(part[:0] for part in classification())),
        "DataError", "without samples",
    ),
    "float8": (float8, "ModelError", "quantized to float8"),
    "unbatched": (unbatched, "DataError", ".batch(n)"),
    "weights by hand": (
        lambda: fit_with("topk", compiled(ByHand())), "ModelError", "apply_gradients()",
    ),
    "diverging": (
        lambda: fit(chain(keras.Input((8,)), DependsOnRank(), keras.layers.Dense(3, "softmax"))),
        "DivergenceError", "counter is not the same on rank(s) [1]",
    ),
    "recompiled": (
        lambda: fit(mlp(), epochs=2, callbacks=[Recompiles()]),
        "ModelError", "between two calls of fit",
    ),
    "stateful": (lambda: fit(stateful()), "ModelError", "stateful=False"),
    "cloned": (
        lambda: keras.models.clone_model(tnt.Model(mlp())), "ModelError", "model.keras_model",
    ),
    "called in a layer": (
        lambda: keras.layers.TimeDistributed(Holds(tnt.Model(mlp())))(np.ones((2, 3, 8))),
        "ModelError", "model.keras_model",
    ),
    "not Keras": (lambda: tnt.Model(tf.Module()), "ModelError", "keras.Model"),
}  # fmt: skip


def told(case: str) -> str:
    """The error of a call, as text; the ranks that were freed tell theirs."""
    try:
        REFUSED[case][0]()
    except TntError as error:
        if not error.peers_know:
            comm.abort(f"rank {comm.rank()}: {error}")
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize("case", REFUSED)
def test_a_clear_error(ranks, case):
    _, kind, words = REFUSED[case]
    texts = ranks.run(2, told, case)
    assert any(text.startswith(kind) and words in text for text in texts), texts
    for text in texts:  # nobody trains on
        assert text.startswith((kind, "PeerError")), texts


class BadShard(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> Any:
        if comm.rank() == 1 and i == 20:
            raise ValueError("shard 20 is broken")
        return np.ones((8, 8), "float32"), np.zeros(8)


def read_a_bad_shard() -> str:
    model = mlp()
    try:
        with tnt.distributed():
            model.fit(BadShard(), epochs=3, verbose=0, shuffle=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def test_bad_data_on_one_rank_ends_the_fit_on_all_with_its_error(ranks):
    texts = ranks.run(3, read_a_bad_shard, timeout=30)
    assert "shard 20 is broken" in texts[1]
    for rank in (0, 2):
        assert texts[rank].startswith("PeerError")
        assert "rank 1: ValueError: shard 20 is broken" in texts[rank]


def train_after_failures() -> list[np.ndarray]:
    keras.utils.set_random_seed(3)
    model = mlp()
    with tnt.distributed():
        model.fit(*classification(), verbose=0)
    return model.get_weights()


def test_training_works_after_a_failed_one(ranks):
    for _ in range(3):
        ranks.run(3, read_a_bad_shard)
        first, *others = ranks.run(3, train_after_failures)
        for weights in others:
            same_bits(weights, first)


def catch_what_one_rank_raises() -> list[np.ndarray]:
    keras.utils.set_random_seed(3)
    model = tnt.Model(mlp())
    try:
        model.fit(BadShard(), epochs=3, verbose=0, shuffle=False)
    except Exception:
        model = tnt.Model(keras.models.clone_model(model.keras_model))
    else:
        raise AssertionError("a bad shard was read")
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 8)), np.zeros((8, 3)), verbose=0)
    return model.get_weights()


def test_a_program_that_catches_the_error_of_one_rank_goes_on(ranks):
    first, *others = ranks.run(3, catch_what_one_rank_raises, timeout=90)
    for weights in others:
        same_bits(weights, first)


def part_of_a_model() -> str:
    with pytest.raises(ValueError) as raised:
        keras.Sequential([tnt.Model(mlp())])
    return str(raised.value)


def test_what_keras_says_of_a_wrapped_model_as_a_layer_names_the_keras_model(ranks):
    (text,) = ranks.run(1, part_of_a_model)
    assert "the Keras model itself is its .keras_model" in text
