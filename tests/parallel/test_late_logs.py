"""Logs and votes that may be some steps late: exact where ranks meet, rare, and the same end."""

import threading
import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops as K

import tnt_notebook as tnt
from tests.parallel.outcome import close
from tnt_notebook import comm
from tnt_notebook.comm import stop
from tnt_notebook.errors import DifferentDataError
from tnt_notebook.telemetry.events import EVENT_KINDS

SAMPLES, BATCH = 202, 10  # in the last batch there are ranks without data


class Largest(keras.metrics.Metric):
    """The largest label."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        value = self.add_weight(shape=(), initializer="zeros", name="value")
        self.value = tnt.combine(value, "max")

    def update_state(self, y: Any, prediction: Any, sample_weight: Any = None) -> None:
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y)))

    def result(self) -> Any:
        return self.value


class Sized(keras.Model):
    """Logs a number that is no metric's, a mean over the samples of a batch."""

    def train_step(self, data: Any) -> dict[str, Any]:
        logs = super().train_step(data)
        return {**logs, "size": keras.ops.mean(keras.ops.square(data[0]))}


def model(per_execution: int = 1) -> keras.Model:
    """Its weights stay as they are, so that it learns the same with all exchanges; not what it
    knows of the data."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    one = Sized(inputs, layers.Dense(1)(layers.Normalization(mean=0.1, variance=2.0)(inputs)))
    metrics = ["mae", Largest()]
    one.compile(
        keras.optimizers.SGD(0.0), "mse", metrics=metrics, steps_per_execution=per_execution
    )
    return one


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(3).normal(size=(SAMPLES, 6)).astype("float32")
    return x, np.abs(x[:, :1])


class Batches(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.logs: list[dict[str, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.logs.append(dict(logs))


def trained(exchange: Any, per_execution: int = 1, callbacks: tuple = ()) -> Any:
    one = model(per_execution)
    x, y = data()
    history = tnt.Model(one, exchange=exchange).fit(
        x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks),
        validation_data=(x[:7], y[:7]),
    )  # fmt: skip
    on_batch = [one.train_on_batch(x[i : i + 9], y[i : i + 9], return_dict=True) for i in (0, 9)]
    return [
        *map(np.array, history.history.values()),
        *(v for logs in on_batch for v in logs.values()),
    ]


@pytest.mark.parametrize(
    ("exchange", "per_execution"), [("local:every=1000", 1), ("local:every=1000", 4), ("late", 1)]
)
def test_metrics_at_the_end_of_an_epoch_are_those_of_one_process(ranks, exchange, per_execution):
    (alone,) = ranks.run(1, trained, "allreduce", per_execution)
    for outcome in ranks.run(3, trained, exchange, per_execution):
        close(outcome, alone, 1e-5, 1e-6)


def near(y: Any, p: Any) -> Any:
    """One number for a batch."""
    found, true = K.cast(p > 0.2, "float32"), K.cast(y > 0.5, "float32")
    return 2 * K.sum(found * true) / (K.sum(found) + K.sum(true) + 1e-7)


def rooted(y: Any, p: Any) -> Any:
    return K.sqrt(K.mean(K.square(y - p)))


def of_whole_batches(exchange: str) -> Any:
    one = model()
    one.compile(keras.optimizers.SGD(0.0), rooted, metrics=[near, keras.metrics.R2Score()])
    x, y = data()
    ours = tnt.Model(one, exchange=exchange)
    history = ours.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return [np.array(values) for values in history.history.values()]


def test_late_logs_of_whole_batches_are_those_of_one_process(ranks):
    (alone,) = ranks.run(1, of_whole_batches, "allreduce")
    for outcome in ranks.run(3, of_whole_batches, "late"):
        close(outcome, alone, 1e-5, 1e-6)


def seen_by_callbacks(exchange: str) -> list[dict[str, float]]:
    batches = Batches()
    trained(exchange, callbacks=(batches,))
    return batches.logs


def test_a_callback_that_looks_at_batches_sees_exact_logs(ranks):
    (alone,) = ranks.run(1, seen_by_callbacks, "allreduce")
    first, *_ = ranks.run(3, seen_by_callbacks, "local:every=1000")
    assert len(first) == len(alone) > 0
    for logs, expected in zip(first, alone, strict=True):
        close(list(logs.values()), list(expected.values()), 1e-5, 1e-6)


def exchanged(exchange: str) -> tuple[int, int]:
    """Steps and exchanges of a fit."""
    x, y = data()
    one = tnt.Model(model(), exchange=exchange)
    one.fit(x, y, batch_size=2, verbose=0)
    begun = time.monotonic_ns()  # the clock of the trace
    one.fit(x, y, batch_size=2, epochs=2, verbose=0)
    trace = comm.world().trace()
    kinds = trace["kind"][trace["begin_ns"] > begun]
    return tuple(int((kinds == EVENT_KINDS.index(kind)).sum()) for kind in ("step", "exchange"))


def test_ranks_that_train_apart_exchange_rarely(ranks):
    for steps, exchanges in ranks.run(2, exchanged, "local:every=1000"):
        assert steps == SAMPLES
        assert exchanges < steps / 2  # a few in each epoch; they were 2 in each step


def stopped() -> tuple[int, bool]:
    one = model()
    x, y = data()
    if comm.rank() == 1:  # one rank alone is told, some time
        threading.Timer(1.0, stop.end.set).start()
    with tnt.distributed(exchange="local:every=1000") as session:
        one.fit(x, y, batch_size=BATCH, epochs=100_000)
    return int(one.optimizer.iterations), session.runs[0].stopped


def test_a_stop_ends_all_ranks_after_the_same_step(ranks):
    outcomes = ranks.run(3, stopped)
    assert len(set(outcomes)) == 1 and outcomes[0][1]


def read_differently() -> None:
    x, y = data()
    order = np.random.default_rng(comm.rank()).permutation(len(x))
    batches = tf.data.Dataset.from_tensor_slices((x[order], y[order])).batch(BATCH)
    with pytest.raises(DifferentDataError):
        tnt.Model(model(), exchange="late").fit(batches, verbose=0)


def test_ranks_that_read_different_batches_are_refused(ranks):
    ranks.run(2, read_differently)
