"""What goes from stage to stage: training is that of one process."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, assert_identical, assert_same, train
from tests.pipeline.models import numbers
from tests.support.cases import latin
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.pipeline.graph import wiring_of
from tnt_notebook.parallel.pipeline.stage import StageFunctions, stage_models
from tnt_notebook.parallel.pipeline.survey import surveyed
from tnt_notebook.plan.partition import begins_of, partition

SAMPLES = 25  # in batches of 10 the last is smaller than the others


def with_few_weights() -> keras.Model:
    """Stages at both ends, and in the middle, have nothing to train."""
    x = inputs = keras.Input((8,))
    x = layers.Rescaling(0.5, name="scaled")(x)
    x = layers.Dense(12, "tanh", name="first")(x)
    x = layers.Activation("tanh", name="middle")(x)
    x = layers.Dense(3, name="last")(x)
    return keras.Model(inputs, layers.Activation("sigmoid", name="end")(x))


def with_frozen_layers() -> keras.Model:
    """As in transfer learning."""
    x = inputs = keras.Input((8,))
    x = layers.Dense(12, "tanh", name="frozen", trainable=False)(x)
    x = layers.BatchNormalization(name="frozen_too", trainable=False)(x)
    x = layers.Dense(12, "tanh", name="first")(x)
    x = layers.Dense(12, "tanh", name="between", trainable=False)(x)
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


class Joined(layers.Layer):
    """Values of any dtypes, as float32 side by side."""

    def call(self, values: Any) -> Any:
        return keras.ops.concatenate([keras.ops.cast(v, "float32") for v in values], -1)

    def compute_output_spec(self, values: Any) -> keras.KerasTensor:
        return keras.KerasTensor((*values[0].shape[:-1], sum(v.shape[-1] for v in values)))


DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "float16", "bfloat16")


def with_many_dtypes() -> keras.Model:
    """Between the layers "first" and "joined" are numbers of all dtypes, and truth values."""
    inputs = keras.Input((8,))
    x = layers.Dense(6, "tanh", name="first")(inputs)
    size = keras.ops.abs(x) * 100
    values = [x, x > 0, keras.ops.cast(x, "float64"), *(keras.ops.cast(size, d) for d in DTYPES)]
    x = layers.BatchNormalization(trainable=False)(Joined(name="joined")(values) / 100)
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


def with_masks() -> keras.Model:
    """Steps with token 0 do not count: in layers that pass the mask on, merge it, or use it."""
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8, mask_zero=True, name="embedding")(tokens)
    x = layers.Dense(8, "tanh", name="dense")(x)
    y = layers.GRU(8, return_sequences=True, name="gru")(x)
    x = layers.Add(name="add")([x, y])
    x = layers.MultiHeadAttention(2, 4, name="attention")(x, x)
    x = layers.Masking(0.1, name="masking")(x)
    x = layers.LSTM(5, name="lstm")(x)
    return keras.Model(tokens, layers.Dense(3, name="last")(x))


def with_a_mask_into_a_model() -> keras.Model:
    """Inside of the inner model, only the values tell that there is a mask."""
    sequence = keras.Input((6, 8))
    y = layers.Dense(8, "tanh", name="inner_dense")(sequence)
    inner = keras.Model(sequence, layers.LSTM(5, name="inner_lstm")(y))
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8, mask_zero=True, name="embedding")(tokens)
    return keras.Model(tokens, layers.Dense(3, name="last")(inner(x)))


class Sequences(layers.Layer):
    """Puts steps together again, as long as those of another value."""

    def call(self, values: Any) -> Any:
        steps, like = values
        return tf.reshape(steps, [*tf.unstack(tf.shape(like)[:2]), steps.shape[-1]])

    def compute_output_spec(self, values: Any) -> keras.KerasTensor:
        steps, like = values
        return keras.KerasTensor((*like.shape[:2], steps.shape[-1]))


def of_any_length() -> keras.Model:
    """Sequences, longer or shorter from batch to batch; steps lie side by side in between."""
    inputs = keras.Input((None, 4))
    x = layers.Conv1D(6, 3, padding="same", activation="tanh", name="conv")(inputs)
    steps = layers.Dense(5, "tanh", name="steps")(keras.ops.reshape(x, (-1, 6)))
    y = layers.LSTM(5, return_sequences=True, name="lstm")(Sequences()([steps, x]))
    x = layers.Concatenate(name="joined")([x, y])
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


def with_synchronized_norm() -> keras.Model:
    x = inputs = keras.Input((8,))
    x = layers.Dense(6, "tanh")(x)
    x = layers.BatchNormalization(synchronized=True, name="whole")(x)
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


MODELS: dict[str, Any] = {
    "few weights": with_few_weights,
    "frozen layers": with_frozen_layers,
    "many dtypes": with_many_dtypes,
    "masks": with_masks,
    "mask into a model": with_a_mask_into_a_model,
    "synchronized norm": with_synchronized_norm,
}


def run(
    name: str,
    cut_at: tuple[str, ...] | None,
    optimizer: tuple[str, dict[str, Any]] = ("Adam", {"learning_rate": 0.01}),
    **options: Any,
) -> Outcome:
    """Trains a model in stages that begin with these layers; None: with Keras alone."""

    def compiled() -> keras.Model:
        model = MODELS[name]()
        kind, arguments = optimizer
        model.compile(getattr(keras.optimizers, kind)(**arguments), "mse", metrics=["mae"])
        return model

    def pipeline(model: keras.Model) -> tnt.Pipeline:
        stages = len(cut_at) + 1
        return tnt.Pipeline(**{"stages": stages, "micro_batches": 3, "cut_at": cut_at, **options})

    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3, seed=9)
    if "mask" in name:
        x = np.random.default_rng(1).integers(0, 4, (SAMPLES, 6)).astype("int32")
    fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2, "validation_data": (x, y)}
    evaluate = {"x": x, "y": y, "batch_size": 7}
    return train(compiled, fit, cut_at is not None, evaluate, pipeline)


_plain: dict[str, Outcome] = {}


def compare(ranks, n, name, cut_at, *optimizer, tolerance=None, **options):
    key = str((name, *optimizer))
    if key not in _plain:
        (_plain[key],) = ranks.run(1, run, name, None, *optimizer)
    outcomes = ranks.run(n, run_with, name, cut_at, optimizer, options)
    assert_same(outcomes[0], _plain[key], **(tolerance or {}))
    assert_identical(outcomes)
    for ours, theirs in zip(outcomes[0].optimizer, _plain[key].optimizer, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-6)


def run_with(name, cut_at, optimizer, options):
    return run(name, cut_at, *optimizer, **options)


CLIPPED = ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "global_clipnorm": 0.05})


WITHOUT_WEIGHTS = [("first",), ("end",), ("middle", "last")]


@pytest.mark.parametrize(
    ("cut_at", "schedule"), latin(WITHOUT_WEIGHTS, ["gpipe", "1f1b", "zb-h1"]), ids=str
)
def test_stages_without_weights(ranks, cut_at, schedule):
    compare(ranks, len(cut_at) + 1, "few weights", cut_at, schedule=schedule)


@pytest.mark.parametrize("cut_at", WITHOUT_WEIGHTS[1:], ids=str)
def test_clipping_needs_ranks_without_weights_too(ranks, cut_at):
    compare(ranks, len(cut_at) + 1, "few weights", cut_at, CLIPPED)


def test_replicas_of_stages_without_weights(ranks):
    compare(ranks, 4, "few weights", ("end",))


@pytest.mark.parametrize(
    ("cut_at", "schedule"),
    latin(
        [("frozen_too",), ("first",), ("between", "last"), ("frozen_too", "first")],
        ["1f1b", "zb-h1"],
    ),
    ids=str,
)
def test_frozen_layers(ranks, cut_at, schedule):
    compare(ranks, len(cut_at) + 1, "frozen layers", cut_at, schedule=schedule)


def gradients_of_frozen_stages():
    model = with_frozen_layers()
    graph = surveyed(model)
    begins = begins_of([call.name for call in graph.calls], ["frozen_too", "first", "between"])
    stages = stage_models(model, graph, partition(wiring_of(graph), begins))
    labels = [tf.TensorSpec((), tf.int64)]
    functions = [
        StageFunctions(stage, labels, lambda y, _: [tf.reduce_mean(y)], "FB", training=True)
        for stage in stages
    ]
    return [[name[:2] for name in function.parts["B"].gives] for function in functions]


def test_before_what_is_trained_there_are_no_gradients(ranks):
    (found,) = ranks.run(1, gradients_of_frozen_stages)
    assert found == [[], [], ["dw", "dw"], ["dx", "dw", "dw"]]


def a_cut_that_is_found(name):
    return run(name, "auto", stages=3)


@pytest.mark.parametrize("name", ["few weights", "frozen layers", "many dtypes"])
def test_a_cut_that_is_found_needs_no_weights(ranks, name):
    (plain,) = ranks.run(1, run, name, None)
    outcomes = ranks.run(3, a_cut_that_is_found, name)
    assert_same(outcomes[0], plain)
    assert_identical(outcomes)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_values_of_all_dtypes(ranks, schedule):
    compare(ranks, 2, "many dtypes", ("joined",), schedule=schedule)


def test_synchronized_batch_norm_needs_the_whole_batch(ranks):
    compare(ranks, 2, "synchronized norm", ("last",), micro_batches=1)
    for text in ranks.run(2, refused, with_synchronized_norm, ("last",), numbers(2, 8)):
        assert "BatchNormalization 'whole' is synchronized" in text and "in 2 parts" in text


@pytest.mark.parametrize("cut", ["gru", "attention", "masking", "last"])
def test_masks(ranks, cut):
    compare(ranks, 2, "masks", (cut,))


@pytest.mark.core
def test_masks_over_several_stages(ranks):
    compare(ranks, 4, "masks", ("dense", "add", "lstm"), schedule="zb-h1", recompute=True)


@pytest.mark.parametrize("cut", ["inner_dense", "inner_lstm"])
def test_masks_into_nested_models(ranks, cut):
    compare(ranks, 2, "mask into a model", (cut,))


def of_any_size() -> keras.Model:
    """Images of any size, down and up again over a skip connection."""
    inputs = keras.Input((None, None, 2))
    a = layers.Conv2D(4, 3, padding="same", activation="tanh", name="down")(inputs)
    b = layers.Conv2D(5, 3, padding="same", name="deep")(layers.AveragePooling2D(2)(a))
    c = layers.Concatenate(name="joined")([layers.UpSampling2D()(b), a])
    return keras.Model(inputs, layers.Conv2D(3, 1, name="last")(c))


def trained_on_sizes(make, sizes, cut_at, options):
    """Every batch has a size of its own."""

    def batches():
        for i, size in enumerate(sizes):
            x = numbers(7 + i, *size, spec.shape[-1], seed=i)
            yield x, x[..., :1] * [1, 0.5, 0.1]

    keras.utils.set_random_seed(7)
    model = make()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    trained = model
    if cut_at is not None:
        stages = len(cut_at) + 1
        pipeline = {"stages": stages, "micro_batches": 3, "cut_at": cut_at, **options}
        trained = tnt.Model(model, pipeline=tnt.Pipeline(**pipeline))
    spec = tf.TensorSpec([None, *model.inputs[0].shape[1:]])
    labels = tf.TensorSpec([*spec.shape[:-1], 3])
    data = tf.data.Dataset.from_generator(batches, output_signature=(spec, labels))
    history = trained.fit(data, epochs=2, validation_data=data, verbose=0).history
    evaluation = trained.evaluate(data, return_dict=True, verbose=0)
    predictions = [trained.predict(x, verbose=0) for x, _ in list(batches())[:2]]
    weights = [np.asarray(w) for w in model.get_weights()]
    optimizer = [np.asarray(v.value) for v in model.optimizer.variables]
    return Outcome(weights, history, evaluation, predictions, optimizer)


def compare_sizes(ranks, n, make, sizes, cut_at, **options):
    if make.__name__ not in _plain:
        (_plain[make.__name__],) = ranks.run(1, trained_on_sizes, make, sizes, None, {})
    outcomes = ranks.run(n, trained_on_sizes, make, sizes, cut_at, options)
    assert_same(outcomes[0], _plain[make.__name__])
    assert_identical(outcomes)


LENGTHS = [(5,), (9,), (1,), (5,)]


@pytest.mark.parametrize("cut_at", [("steps",), ("lstm", "last")], ids=str)
def test_sequences_of_any_length(ranks, cut_at):
    compare_sizes(ranks, len(cut_at) + 1, of_any_length, LENGTHS, cut_at)


def test_sequences_of_any_length_in_other_orders(ranks):
    options = {"schedule": "interleaved", "stages": 2, "recompute": True}
    compare_sizes(ranks, 2, of_any_length, LENGTHS, ("steps", "lstm", "last"), **options)


def test_sequences_of_any_length_on_replicas(ranks):
    compare_sizes(ranks, 4, of_any_length, LENGTHS, ("lstm",))


@pytest.mark.parametrize("cut_at", [("joined",), "auto"], ids=str)
def test_images_of_any_size(ranks, cut_at):
    compare_sizes(ranks, 2, of_any_size, [(6, 4), (8, 8), (2, 10)], cut_at, stages=2)


def whose_outputs_carry_a_mask() -> keras.Model:
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8, mask_zero=True)(tokens)
    return keras.Model(tokens, layers.Dense(3, name="last")(x))


def whose_output_has_rows_of_its_own() -> keras.Model:
    tokens = keras.Input((6,), dtype="int32")
    x = keras.ops.reshape(layers.Embedding(11, 8)(tokens), (-1, 8))
    return keras.Model(tokens, layers.Dense(3, name="last")(x))


def with_text() -> keras.Model:
    inputs = keras.Input((), dtype="string")
    x = layers.Lambda(tf.strings.lower, output_shape=(), dtype="string", name="lower")(inputs)
    x = layers.StringLookup(vocabulary=["a", "b"], name="lookup")(x)
    return keras.Model(inputs, layers.Dense(3)(layers.Embedding(3, 4)(x)))


def refused(make, cut_at, x):
    keras.utils.clear_session()  # names of values count from here, on all ranks
    model = make()
    model.compile("sgd", "mse")
    with pytest.raises(ModelError) as raised:
        trained = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=cut_at))
        trained.fit(tf.constant(x), numbers(2, 3), verbose=0)
    return str(raised.value)


def test_text_between_stages_is_refused(ranks):
    here, there = ranks.run(2, refused, with_text, ("lookup",), ["a", "B"])
    assert here == there
    assert "from another stage, whose dtype is string" in here


def test_outputs_that_micro_batches_cannot_make_are_refused(ranks):
    tokens = [[1, 2, 3, 0, 0, 0]] * 2
    for text in ranks.run(2, refused, whose_outputs_carry_a_mask, ("last",), tokens):
        assert "a mask on its outputs" in text
    for text in ranks.run(2, refused, whose_output_has_rows_of_its_own, ("last",), tokens):
        assert "does not have one row per sample: for 1009 samples" in text


def thawed(cut_at):
    """Trained, then all of it trained with another loss: as in fine-tuning."""
    keras.utils.set_random_seed(7)
    model = with_frozen_layers()
    trained = model
    if cut_at is not None:
        trained = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=cut_at))
    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3, seed=9)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    first = trained.fit(x, y, epochs=1, batch_size=10, shuffle=False, verbose=0)
    for name in ("frozen", "between"):
        model.get_layer(name).trainable = True
    model.compile(keras.optimizers.Adam(0.01), "mae")
    second = trained.fit(x, y, epochs=2, batch_size=10, shuffle=False, verbose=0)
    losses = [*first.history["loss"], *second.history["loss"]]
    return losses, [np.asarray(w) for w in model.get_weights()]


def test_a_model_that_is_compiled_again_goes_by_its_new_loss_and_weights(ranks):
    ((losses, weights),) = ranks.run(1, thawed, None)
    for ours, found in ranks.run(2, thawed, ("first",)):
        np.testing.assert_allclose(ours, losses, 2e-5)
        for a, b in zip(found, weights, strict=True):
            np.testing.assert_allclose(a, b, 2e-5, 2e-6)
