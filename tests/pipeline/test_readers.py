"""Only the first and last stages read data, and they must read the same."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.outcome import close
from tests.pipeline.models import mlp, numbers, several_inputs_and_outputs
from tnt_notebook.errors import DifferentDataError
from tnt_notebook.parallel.layer_graph.graph import wiring_of
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.pipeline.place import Plan
from tnt_notebook.parallel.pipeline.readers import ranks_without_data
from tnt_notebook.plan.families import make
from tnt_notebook.plan.partition import partition

SAMPLES, BATCH = 25, 10  # the last batch is smaller
X, Y = numbers(SAMPLES, 8), numbers(SAMPLES, 3, seed=9)


class Batches(keras.utils.PyDataset):
    """Counts what is read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def __len__(self) -> int:
        return -(-SAMPLES // BATCH)

    def __getitem__(self, i: int) -> Any:
        self.read += 1
        return X[i * BATCH : (i + 1) * BATCH], Y[i * BATCH : (i + 1) * BATCH]


class Endless(Batches):
    """The same over and over, through tf.data."""

    def dataset(self) -> tf.data.Dataset:
        def read(i: Any) -> Any:
            return self[int(i) % len(self)]

        def batch(i: Any) -> Any:
            x, y = tf.py_function(read, [i], (tf.float32, tf.float32))
            return tf.ensure_shape(x, (None, 8)), tf.ensure_shape(y, (None, 3))

        return tf.data.Dataset.counter().map(batch)


def of_unknown_length() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).filter(lambda *_: True).batch(BATCH)


def trained(distributed: bool, data: Callable[[], Any], **arguments: Any) -> Any:
    """Weights, losses and predictions of the middle one of three stages, and others."""
    keras.utils.set_random_seed(3)
    model = mlp()
    model.compile("adam", "mse")
    one = tnt.Model(model, pipeline=tnt.Pipeline(3, 2)) if distributed else model
    history = one.fit(data(), epochs=2, verbose=0, **arguments).history
    evaluated = one.evaluate(of_unknown_length(), verbose=0)
    on_batch = one.train_on_batch(X[:9], Y[:9])
    predicted = one.predict(tf.data.Dataset.from_tensor_slices(X).batch(7), verbose=0)
    return [*model.get_weights(), history["loss"], evaluated, on_batch, predicted]


def counted(kind: type[Batches], arguments: dict[str, Any], distributed: bool) -> tuple[Any, int]:
    batches = kind()
    data = (lambda: batches.dataset()) if isinstance(batches, Endless) else (lambda: batches)
    return trained(distributed, data, **arguments), batches.read


@pytest.mark.parametrize(
    ("kind", "arguments", "looks"),
    [(Batches, {"shuffle": False}, 2), (Endless, {"steps_per_epoch": 3}, 0)],
)
def test_a_rank_in_the_middle_reads_nothing(ranks, kind, arguments, looks):
    """But for the batches of which Keras takes the shapes."""
    ((expected, _),) = ranks.run(1, counted, kind, arguments, False)
    first, middle, last = ranks.run(3, counted, kind, arguments, True)
    for outcome, _ in (first, middle, last):
        close(outcome, expected, 1e-4, 1e-5)
    assert middle[1] == looks
    assert min(first[1], last[1]) >= looks + 6


def without_a_length(distributed: bool) -> Any:
    return trained(distributed, of_unknown_length)


def test_where_nobody_knows_how_many_batches_there_are(ranks):
    (expected,) = ranks.run(1, without_a_length, False)
    for outcome in ranks.run(3, without_a_length, True):
        close(outcome, expected, 1e-4, 1e-5)


def read_differently() -> str:
    model = mlp()
    model.compile("sgd", "mse")
    one = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=[model.layers[3].name]))
    order = np.random.default_rng(tnt.world().rank).permutation(SAMPLES)
    data = tf.data.Dataset.from_tensor_slices((X[order], Y[order])).batch(BATCH)
    with pytest.raises(DifferentDataError) as raised:
        one.fit(data, verbose=0)
    return str(raised.value)


def test_inputs_and_labels_of_different_samples_are_refused(ranks):
    for text in ranks.run(2, read_differently):
        assert "The ranks read different batches" in text


def test_a_stage_with_an_input_of_its_own_reads():
    model = several_inputs_and_outputs()
    graph = surveyed(model)
    wiring = wiring_of(graph)
    second = next(i for i, (takes, _) in enumerate(wiring.calls) if graph.inputs[1] in takes)
    assert 0 < second < len(wiring.calls) - 1
    schedule = make("1f1b", 4, 4)
    cut = partition(wiring, [1, second, second + 1])
    with_input = cut.stages.index(next(s for s in cut.stages if s.begin == second))
    assert set(ranks_without_data(Plan(cut, schedule))) == {1, 2} - {with_input}


def test_both_ends_of_a_v_are_on_the_first_rank():
    wiring = wiring_of(surveyed(mlp()))
    schedule = make("zb-v", 3, 6)
    cut = partition(wiring, range(1, schedule.stages))
    assert ranks_without_data(Plan(cut, schedule)) == (1, 2)
