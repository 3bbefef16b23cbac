"""What goes from stage to stage: training is that of one process."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tnt_notebook as tnt
from tests.parallel import outcome
from tests.parallel.outcome import Outcome, close
from tests.pipeline.models import numbers
from tests.pipeline.training import ADAM, SAMPLES, compare, pipeline_of, refused
from tests.support.cases import THOROUGH
from tnt_notebook import comm
from tnt_notebook.errors import ModelError, PeerError
from tnt_notebook.parallel.layer_graph.graph import wiring_of
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.pipeline.stage import StageFunctions, stage_models
from tnt_notebook.plan.partition import begins_of, partition


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


CLIPPED = ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "global_clipnorm": 0.05})


@pytest.mark.parametrize(
    ("cut_at", "schedule", "optimizer"),
    [
        *[(("first",), "gpipe", ADAM)] * THOROUGH,
        # Clipping needs ranks without weights, too.
        (("end",), "1f1b", CLIPPED),
        (("middle", "last"), "zb-h1", CLIPPED),
    ],
)
def test_stages_without_weights(ranks, cut_at, schedule, optimizer):
    options = {"cut_at": cut_at, "schedule": schedule}
    compare(ranks, len(cut_at) + 1, with_few_weights, options, optimizer)


def test_replicas_of_stages_without_weights(ranks):
    compare(ranks, 4, with_few_weights, {"cut_at": ("end",)})


@pytest.mark.parametrize(
    ("cut_at", "schedule"),
    [(("frozen_too", "first"), "zb-h1"), *[(("between", "last"), "1f1b")] * THOROUGH],
    ids=str,
)
def test_frozen_layers(ranks, cut_at, schedule):
    compare(ranks, 3, with_frozen_layers, {"cut_at": cut_at, "schedule": schedule})


def gradients_of_frozen_stages():
    model = with_frozen_layers()
    graph = surveyed(model)
    begins = begins_of([call.name for call in graph.calls], ["frozen_too", "first", "between"])
    stages = stage_models(model, graph, partition(wiring_of(graph), begins))
    labels = [tf.TensorSpec((), tf.int64)] * 3
    functions = [
        StageFunctions(stage, labels, lambda y, _: ([tf.reduce_mean(y)], []), "FB", training=True)
        for stage in stages
    ]
    return [[name[:2] for name in function.parts["B"].gives] for function in functions]


def test_before_what_is_trained_there_are_no_gradients(ranks):
    (found,) = ranks.run(1, gradients_of_frozen_stages)
    assert found == [[], [], ["dw", "dw"], ["dx", "dw", "dw"]]


@pytest.mark.parametrize(
    "make", [with_many_dtypes, *[with_few_weights, with_frozen_layers] * THOROUGH]
)
def test_a_cut_that_is_found_needs_no_weights(ranks, make):
    compare(ranks, 3, make, {"stages": 3, "cut_at": "auto"})


def test_values_of_all_dtypes(ranks):
    compare(ranks, 2, with_many_dtypes, {"cut_at": ("joined",), "schedule": "zb-h1"})


def test_synchronized_batch_norm_needs_the_whole_batch(ranks):
    compare(ranks, 2, with_synchronized_norm, {"cut_at": ("last",), "micro_batches": 1})
    in_two_parts = {"cut_at": ("last",), "micro_batches": 2}
    for text in ranks.run(2, refused, with_synchronized_norm, in_two_parts):
        assert "BatchNormalization 'whole' is synchronized" in text and "in parts, one" in text


@pytest.mark.parametrize(
    "cut_at", [("gru", "masking"), *[("attention", "last")] * THOROUGH], ids=str
)
def test_masks(ranks, cut_at):
    compare(ranks, 3, with_masks, {"cut_at": cut_at})


class WithState(layers.Layer):
    """Counts steps and samples, sums, and keeps a moving mean and the largest number."""

    def build(self, shape: Any) -> None:
        kinds = {"steps": "int32", "samples": "int64", "total": "float32", "most": "float32"}
        for name, dtype in kinds.items():
            made = self.add_weight(
                shape=(), dtype=dtype, initializer="zeros", trainable=False, name=name
            )
            setattr(self, name, made)
        self.mean = self.add_weight(
            shape=shape[-1:], initializer="ones", trainable=False, name="mean"
        )

    def call(self, x: Any, training: bool = False) -> Any:
        scaled = x * keras.ops.stop_gradient(self.mean)
        if training:
            self.steps.assign_add(1)
            self.samples.assign_add(keras.ops.cast(keras.ops.shape(x)[0], "int64"))
            self.total.assign_add(keras.ops.sum(x))
            self.most.assign(keras.ops.maximum(self.most, keras.ops.max(x)))
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, 0))
        return scaled


def with_state() -> keras.Model:
    inputs = keras.Input((8,))
    x = WithState()(layers.Dense(6, "tanh")(WithState()(inputs)))
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(6, "tanh", name="second")(x)))


@pytest.mark.parametrize(("n", "recompute"), [(4, False), *[(2, True)] * THOROUGH])
def test_state_of_layers_is_that_of_whole_batches(ranks, n, recompute):
    options = {"cut_at": ("second",), "schedule": "zb-h1", "recompute": recompute}
    compare(ranks, n, with_state, options)


class Spread(layers.Layer):
    def build(self, shape: Any) -> None:
        self.spread = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.spread.assign(keras.ops.std(x))
        return x


def of_spread(told: bool = False) -> keras.Model:
    inputs, layer = keras.Input((8,)), Spread()
    x = layer(layers.Dense(6)(inputs))
    if told:
        tnt.combine(layer.spread, "mean")
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


def test_state_that_does_not_combine_is_refused_until_it_is_told_how(ranks):
    here, there = ranks.run(2, in_two_stages, of_spread)
    assert "assigns" in here and "tnt.combine(variable, rule)" in here and "rank 0" in there
    assert ranks.run(2, in_two_stages, functools.partial(of_spread, told=True)) == ["", ""]


def in_two_stages(make):
    model = make()
    model.compile("sgd", "mse")
    stages = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=["last"]))
    try:
        with tnt.distributed():
            stages.fit(numbers(8, *model.input_shape[1:]), numbers(8, 3), verbose=0)
    except (ModelError, PeerError) as error:
        comm.world().recover()
        return str(error)
    return ""


class Penalized(layers.Layer):
    """Draws, too, which says nothing of other samples."""

    def __init__(self, reduce: Callable[[Any], Any]) -> None:
        super().__init__()
        self.reduce, self.seeds = reduce, keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        self.add_loss(self.reduce(keras.ops.square(x)))
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seeds)


#: Between two layers of a pipeline's first stage, and whether micro-batches may be given to it.
BETWEEN = {
    "a mean is taken off": (lambda x: x - keras.ops.mean(x, 0, keepdims=True), False),
    "a sum as a loss": (lambda x: Penalized(keras.ops.sum)(x), True),
    "a mean as a loss": (lambda x: Penalized(keras.ops.mean)(x), True),
    "a sorted batch": (lambda x: layers.Lambda(lambda x: keras.ops.sort(x, 0))(x), False),
    "a softmax": (lambda x: layers.Lambda(keras.ops.softmax)(x), True),
}


def between(what: str) -> keras.Model:
    inputs = keras.Input((8,))
    x = BETWEEN[what][0](layers.Dense(6)(inputs))
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


def said_of_all_between():
    return [in_two_stages(functools.partial(between, what)) for what in BETWEEN]


def test_what_looks_at_several_samples_is_refused(ranks):
    for (_, may_be), here, there in zip(
        BETWEEN.values(), *ranks.run(2, said_of_all_between), strict=True
    ):
        if may_be:
            assert here == there == ""
        else:
            assert "looks at several samples" in here and "rank 0" in there


def with_a_norm_in_both() -> keras.Model:
    inputs, norm = keras.Input((6,)), layers.BatchNormalization()
    x = layers.Dense(6, name="last")(norm(layers.Dense(6)(inputs)))
    return keras.Model(inputs, layers.Dense(3)(norm(x)))


def test_state_that_two_stages_change_by_samples_is_refused(ranks):
    for said in ranks.run(2, in_two_stages, with_a_norm_in_both):
        assert "moving_mean in several stages" in said


def with_norm() -> keras.Model:
    inputs = keras.Input((8,))
    x = layers.BatchNormalization()(layers.Dense(6)(inputs))
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(6, "tanh", name="second")(x)))


def test_batch_norm_of_replicas_is_that_of_one_process_by_the_same_parts(ranks):
    options = {"stages": 2, "cut_at": ("second",), "micro_batches": 2}
    compare(ranks, 4, with_norm, options, ("SGD", {"learning_rate": 0.1}), same_parts=True)


@pytest.mark.core
def test_masks_over_several_stages(ranks):
    cut_at = ("dense", "add", "lstm")
    compare(ranks, 4, with_masks, {"cut_at": cut_at, "schedule": "zb-h1", "recompute": True})


def test_masks_into_nested_models(ranks):
    compare(ranks, 3, with_a_mask_into_a_model, {"cut_at": ("inner_dense", "inner_lstm")})


def of_any_size() -> keras.Model:
    """Images of any size, down and up again over a skip connection."""
    inputs = keras.Input((None, None, 2))
    a = layers.Conv2D(4, 3, padding="same", activation="tanh", name="down")(inputs)
    b = layers.Conv2D(5, 3, padding="same", name="deep")(layers.AveragePooling2D(2)(a))
    c = layers.Concatenate(name="joined")([layers.UpSampling2D()(b), a])
    return keras.Model(inputs, layers.Conv2D(3, 1, name="last")(c))


def trained_on_sizes(make, sizes, options):
    """Every batch has a size of its own."""

    def batches():
        for i, size in enumerate(sizes):
            x = numbers(7 + i, *size, spec.shape[-1], seed=i)
            yield x, x[..., :1] * [1, 0.5, 0.1]

    keras.utils.set_random_seed(7)
    model = make()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    trained = model
    if options is not None:
        trained = tnt.Model(model, pipeline=pipeline_of(model, options))
    spec = tf.TensorSpec([None, *model.inputs[0].shape[1:]])
    labels = tf.TensorSpec([*spec.shape[:-1], 3])
    data = tf.data.Dataset.from_generator(batches, output_signature=(spec, labels))
    history = trained.fit(data, epochs=2, validation_data=data, verbose=0).history
    evaluation = trained.evaluate(data, return_dict=True, verbose=0)
    predictions = [trained.predict(x, verbose=0) for x, _ in list(batches())[:2]]
    weights = [np.asarray(w) for w in model.get_weights()]
    optimizer = [np.asarray(v.value) for v in model.optimizer.variables]
    return Outcome(weights, history, evaluation, predictions, optimizer)


LENGTHS = (of_any_length, ((5,), (9,), (1,), (5,)))
SIZES = (of_any_size, ((6, 4), (8, 8), (2, 10)))
OTHER_ORDER = {"stages": 2, "schedule": "interleaved", "recompute": True}


@pytest.mark.parametrize(
    ("what", "n", "options"),
    [
        (LENGTHS, 3, {"cut_at": ("lstm", "last")}),
        (LENGTHS, 2, {"cut_at": ("steps", "lstm", "last"), **OTHER_ORDER}),
        (LENGTHS, 4, {"cut_at": ("lstm",)}),
        (SIZES, 2, {"cut_at": ("joined",)}),
        (SIZES, 2, {"cut_at": "auto", "stages": 2}),
    ],
)
def test_sequences_of_any_length_and_images_of_any_size(ranks, what, n, options):
    outcome.compare(ranks, n, trained_on_sizes, *what, options, alone=(*what, None))


def of_sparse_inputs() -> keras.Model:
    """Two, of numbers and of words that are counted, beside a dense one that joins later."""
    numbers, words = keras.Input((8,), sparse=True), keras.Input((11,), dtype="int32", sparse=True)
    x = layers.Concatenate()([layers.Dense(6, "tanh")(numbers), layers.Dense(4, "tanh")(words)])
    dense = keras.Input((3,))
    x = layers.Concatenate()([layers.Dense(6, "tanh", name="second")(x), dense])
    return keras.Model([numbers, words, dense], layers.Dense(3)(x))


def trained_on_sparse(options):
    """On tf.data with sparse parts; dense ones are made sparse."""
    made = numbers(SAMPLES, 8)
    counts = np.random.default_rng(0).integers(0, 2, (SAMPLES, 11)).astype("int32")
    x = (
        tf.sparse.from_dense(made * (made > 0.5)),
        tf.sparse.from_dense(counts),
        numbers(SAMPLES, 3),
    )
    data = tf.data.Dataset.from_tensor_slices((x, numbers(SAMPLES, 3, seed=9))).batch(10)

    def model() -> keras.Model:
        model = of_sparse_inputs()
        model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.1), "mse", metrics=["mae"])
        return model

    in_stages = None
    if options is not None and "stages" in options:
        in_stages = functools.partial(pipeline_of, options=options)
    distributed = options is not None
    more = options if options is not None and "mesh" in options else None
    given = {"x": [tf.sparse.to_dense(x[0]).numpy(), counts, x[2]], "y": numbers(SAMPLES, 3)}
    return outcome.train(model, {"x": data, "epochs": 2}, distributed, given, in_stages, more)


COLUMNS = {"dense.*": tnt.Split(columns="model")}


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (4, {"cut_at": ("second",), "stages": 2, "recompute": True}),
        (2, {"mesh": tnt.Mesh(model=2), "layouts": COLUMNS}),
        *[(3, {}), (2, {"stages": 2})] * THOROUGH,
    ],
)
def test_sparse_inputs(ranks, n, options):
    outcome.compare(ranks, n, trained_on_sparse, options, alone=(None,))


def of_words() -> keras.Model:
    """The gradient of an Embedding is that of the rows that were looked up, each for itself."""
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(11, 4)(tokens))
    return keras.Model(tokens, layers.Dense(3)(layers.Dense(5, "tanh", name="second")(x)))


def test_rows_of_replicas_stay_apart(ranks):
    compare(ranks, 4, of_words, {"cut_at": ("second",)}, ("Adam", {"global_clipnorm": 0.1}))


def of_text() -> keras.Model:
    inputs = keras.Input((1,), dtype="string")
    words = layers.TextVectorization(vocabulary=["be", "not", "or", "to"], output_sequence_length=3)
    x = layers.Flatten()(layers.Embedding(6, 4)(words(inputs)))
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(5, "tanh")(x)))


def test_text_that_the_first_stage_makes_numbers_of(ranks):
    compare(ranks, 2, of_text, {"stages": 2})


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


TOKENS = [[1, 2, 3, 0, 0, 0]] * 2
OWN_ROWS = "does not have one row per sample: for 1009 samples"


@pytest.mark.parametrize(
    ("make", "cut_at", "x", "words"),
    [
        (with_text, "lookup", ["a", "B"], "from another stage, whose dtype is string"),
        (whose_output_has_rows_of_its_own, "last", TOKENS, OWN_ROWS),
    ],
)
def test_what_micro_batches_cannot_carry_or_make_is_refused(ranks, make, cut_at, x, words):
    here, there = ranks.run(2, refused, make, {"cut_at": (cut_at,), "micro_batches": 2}, x)
    assert here == there and words in here


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
        close((ours, found), (losses, weights))


def looked_up(distributed: bool) -> Any:
    """Vectors of lookups, which say that they are float32 and are int64, go to the second stage; a
    model that was not compiled predicts."""
    keras.utils.set_random_seed(1)
    words, numbers = keras.Input((1,), dtype="string"), keras.Input((1,), dtype="int64")
    x = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(words)
    y = layers.IntegerLookup(vocabulary=[1, 2], output_mode="count")(numbers)
    x, y = layers.Dense(4, name="first")(x), layers.Dense(4)(y)
    model = keras.Model([words, numbers], layers.Dense(2)(layers.Concatenate()([x, y])))
    pipeline = tnt.Pipeline(stages=2, cut_at=["first"], micro_batches=2)
    ours = tnt.Model(model, pipeline=pipeline) if distributed else model
    given = tf.constant([["a"], ["b"], ["?"]] * 4), tf.constant([[1], [2], [3]] * 4, tf.int64)
    wanted = np.arange(24, dtype="float32").reshape(12, 2) / 24
    batches = tf.data.Dataset.from_tensor_slices((given, wanted)).batch(6)
    before = ours.predict(batches.map(lambda x, y: (x,)), verbose=0)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    ours.fit(batches, verbose=0)
    return [before, *model.get_weights()]


def test_lookups_across_a_cut_and_a_model_that_only_predicts(ranks):
    (alone,) = ranks.run(1, looked_up, False)
    for ours in ranks.run(2, looked_up, True):
        close(ours, alone)
