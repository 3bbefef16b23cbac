"""fit, evaluate and predict of a model in stages give what one process gives."""

import functools
from typing import Any

import keras
import pytest

import tnt_notebook as tnt
from tests.parallel.outcome import close, same_bits
from tests.pipeline.models import MODELS, mlp, nested, numbers, regularized, residual, transformer
from tests.pipeline.training import ADAM, SAMPLES, compare, cut_evenly, refused
from tests.support.cases import THOROUGH, latin
from tnt_notebook import comm
from tnt_notebook.errors import ModelError, PeerError
from tnt_notebook.parallel.layer_graph.graph import graph_of
from tnt_notebook.plan.families import FAMILIES

SGD = ("SGD", {"learning_rate": 0.05, "momentum": 0.9})

#: How many micro-batches, whether activations are computed again, and the optimizer.
HOW = [
    (4, False, SGD), (1, True, ADAM), (7, True, SGD), (2, False, ADAM), (5, True, ADAM),
    (3, False, SGD), (8, False, ADAM), (6, True, SGD),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "schedule", "n", "how"), latin(MODELS, FAMILIES, (2, 3, 2, 4), HOW)
)
def test_equality(ranks, name, schedule, n, how):
    make, (micro_batches, recompute, optimizer) = MODELS[name], how
    n = min(n, len(graph_of(make()).calls) // FAMILIES[schedule].stages_per_rank)
    # The layer that is shared in "nested" comes twice, so that its name does not say where to cut.
    cut = "auto" if make is nested else "evenly"
    options = {"stages": n, "micro_batches": micro_batches, "schedule": schedule, "cut_at": cut}
    options["recompute"] = recompute
    if make is residual:  # batch norm sees micro-batches: so it must in one process
        compare(ranks, n, make, options, optimizer, same_parts=True, rtol=1e-4, atol=1e-5)
    else:
        compare(ranks, n, make, options, optimizer)


TWO = {"stages": 2, "cut_at": "evenly"}


@pytest.mark.parametrize("placement", ["pipeline", "replicas"])
def test_replicas_of_a_pipeline(ranks, placement):
    compare(ranks, 4, regularized, TWO | {"micro_batches": 4, "placement": placement})


@pytest.mark.core
def test_more_micro_batches_than_samples(ranks):
    # Of the last batch of 5, the replicas have 1 and 4 samples, and so empty micro-batches.
    compare(ranks, 4, mlp, TWO | {"micro_batches": 8, "shares": (1, 3)})


OPTIMIZERS = {
    "SGD": {"learning_rate": 0.1, "momentum": 0.9, "clipnorm": 0.05},
    "AdamW": {"global_clipnorm": 0.05},
    "RMSprop": {"use_ema": True, "ema_overwrite_frequency": 3},
    "Lion": {"learning_rate": 0.01, "use_ema": True, "ema_overwrite_frequency": None},
    "Adagrad": {"gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(ranks, name):
    options = TWO | {"recompute": True}
    compare(ranks, 2, mlp, options, (name, OPTIMIZERS[name]), evaluated=False, atol=1e-5)


def several_optimizers() -> keras.optimizers.Optimizer:
    """Kernels, biases of the first layers, which are on one rank, and other biases have their own;
    norms are those of what an optimizer trains."""
    made = keras.optimizers
    own = {
        ".*kernel": made.SGD(0.1, global_clipnorm=0.05), ".*first.*bias": made.RMSprop(0.01),
    }  # fmt: skip
    return made.MultiOptimizer(made.OptimizerMap(made.Adam(0.01, use_ema=True), own))


class WithoutConfig(keras.optimizers.Optimizer):
    def __init__(self, power):
        super().__init__(learning_rate=0.1)
        self.power = power

    def update_step(self, gradient, variable, learning_rate):
        step = keras.ops.sign(gradient) * keras.ops.power(keras.ops.abs(gradient), self.power)
        self.assign_sub(variable, keras.ops.cast(learning_rate, variable.dtype) * step)


class Shifted(keras.layers.Layer):
    """It says nothing of its arguments."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def build(self, shape):
        self.factor = self.add_weight(shape=shape[-1:], initializer="ones")

    def call(self, x):
        return x * self.factor + self.by


class OwnPenalty(keras.regularizers.Regularizer):
    def __call__(self, weights):
        return 0.1 * keras.ops.sum(keras.ops.square(weights))


def of_own_making() -> keras.Model:
    inputs = keras.Input((8,))
    x = keras.layers.Dense(6, "tanh", kernel_regularizer=OwnPenalty(), name="first")(inputs)
    x = keras.layers.Dense(6, name="second")(Shifted(numbers(6))(x))
    return keras.Model(inputs, keras.layers.Dense(3)(keras.Sequential([Shifted(0.1)])(x)))


@pytest.mark.parametrize(
    ("make", "optimizer"), [(of_own_making, WithoutConfig), (of_own_making, several_optimizers)]
)
def test_what_is_of_ones_own_need_not_have_a_config(ranks, make, optimizer):
    arguments = {"power": 1.1} if optimizer is WithoutConfig else {}
    compare(ranks, 2, make, {"stages": 2}, (optimizer, arguments), evaluated=False)


@pytest.mark.core
def test_shared_weights_count_once_in_the_norm_of_all(ranks):
    optimizer = "SGD", {"learning_rate": 1.0, "global_clipnorm": 0.01}
    compare(ranks, 2, transformer, TWO, optimizer, evaluated=False)


@pytest.mark.core
@pytest.mark.parametrize(("n", "count"), [(2, 3), *[(4, 2)] * THOROUGH])
def test_several_steps_per_execution(ranks, n, count):
    # Of the 3 batches, Keras runs so many in one call of the train function.
    compare(ranks, n, mlp, TWO, ("Adam", {}), {"steps_per_execution": count})


def in_two_stages():
    model = mlp()
    model.compile("adam", "mse")
    wrapped = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=cut_evenly(model, 2)))
    return model, wrapped, numbers(SAMPLES, 8), numbers(SAMPLES, 3)


def saved_and_loaded(folder):
    """A callback and the caller see the whole model; it is Keras's own."""
    model, wrapped, x, y = in_two_stages()
    checkpoint = keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.keras")
    wrapped.fit(x, y, epochs=2, verbose=0, callbacks=[checkpoint])
    wrapped.train_on_batch(x[:9], y[:9])
    tnt.world().barrier()  # rank 0 writes
    loaded = keras.models.load_model(f"{folder}/2.keras")
    loaded.train_on_batch(x[:9], y[:9])
    close(model.get_weights(), loaded.get_weights(), 1e-5, 1e-6)


@pytest.mark.core
def test_checkpoints_have_the_whole_model_and_its_optimizer(ranks, tmp_path):
    ranks.run(2, saved_and_loaded, str(tmp_path))


def failed_and_made_whole():
    model, wrapped, x, y = in_two_stages()

    def fail(epoch, logs):
        if epoch == 1:
            raise OSError("the disk is full")

    callback = keras.callbacks.LambdaCallback(on_epoch_begin=fail)
    with pytest.raises((OSError, PeerError)), tnt.distributed():
        wrapped.fit(x, y, epochs=3, verbose=0, callbacks=[callback])
    comm.world().recover()
    said = ""
    try:
        model.get_weights()
    except ModelError as error:
        said = str(error)
    wrapped.evaluate(x, y, verbose=0)
    return said, model.get_weights()


def test_after_a_fit_that_failed_weights_say_where_they_are_until_the_model_is_whole(ranks):
    (first, weights), (second, same) = ranks.run(2, failed_and_made_whole)
    assert (
        "is on rank 1: while a model trains in a pipeline" in first
    )  # the callback used no weights
    assert "is on rank 0: while a model trains in a pipeline" in second
    same_bits(weights, same)


class Own(keras.Model):
    def train_step(self, data):
        return {}


def with_an_own_step():
    inputs = keras.Input((8,))
    return Own(inputs, keras.layers.Dense(3)(inputs))


#: Of a pipeline of two stages: its options, the model, and why it is refused.
REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"stages": 3}, mlp, "2 ranks cannot form pipelines of 3 stages"),
    ({"cut_at": ["no such layer"]}, mlp, "cut_at names 'no such layer'"),
    ({"schedule": "2f2b"}, mlp, "There is no schedule '2f2b'"),
    ({"cut_at": []}, mlp, "cut_at makes 1 parts of the model"),
    ({"micro_batches": 7000}, mlp, "7000 micro-batches: that is more than there are channels"),
    ({}, with_an_own_step, "Own has a train_step of its own"),
]


def all_refused():
    return [refused(make, options) for options, make, _ in REFUSED]


def test_what_cannot_be_done_is_said_before_training(ranks):
    here, there = ranks.run(2, all_refused)
    assert here == there
    for said, (_, _, words) in zip(here, REFUSED, strict=True):
        assert words in said


class OfClasses(keras.losses.Loss):
    """Keras masks it: a class does not count."""

    def call(self, y, outputs):
        classes = keras.ops.argmax(y, -1)
        return keras.losses.sparse_categorical_crossentropy(
            classes, outputs, from_logits=True, ignore_class=1
        )


class Masked(keras.losses.Loss):
    """The first of the labels, or of the outputs, says which samples count."""

    def __init__(self, by_outputs=False):
        super().__init__()
        self.by_outputs = by_outputs

    def call(self, y, outputs):
        loss = keras.ops.mean(keras.ops.square(y - outputs), -1)
        loss._keras_mask = (outputs if self.by_outputs else y)[:, 0] > 0
        return loss


LOSSES = {
    "of classes": OfClasses,
    "masked by labels": Masked,
    "masked by outputs": lambda: Masked(by_outputs=True),
    "divided by weights": lambda: keras.losses.MeanSquaredError("mean_with_sample_weight"),
    "dice": keras.losses.Dice,
    "hinge": keras.losses.Hinge,  # asks whether all labels are binary
}


def compiled_with(loss):
    return {"loss": LOSSES[loss]()}


@pytest.mark.parametrize(
    ("n", "loss"),
    [(2, "of classes"), (4, "masked by labels"), (2, "divided by weights"), (4, "hinge")],
)
def test_what_a_loss_divides_by_is_that_of_the_batch(ranks, n, loss):
    compare(ranks, n, mlp, TWO, ADAM, functools.partial(compiled_with, loss))


def in_parts(loss, micro_batches):
    """Why it does not train; nothing if it does."""
    model = mlp()
    model.compile("sgd", **compiled_with(loss))
    stages = tnt.Model(model, pipeline=tnt.Pipeline(stages=2, micro_batches=micro_batches))
    x = numbers(8, model.inputs[0].shape[1])
    try:
        with tnt.distributed():
            stages.fit(x, numbers(8, model.outputs[0].shape[1]), verbose=0)
    except (ModelError, PeerError) as error:
        comm.world().recover()
        return str(error)
    return ""


@pytest.mark.parametrize("loss", ["dice", "masked by outputs"])
def test_a_loss_of_the_whole_batch_is_refused_where_a_schedule_goes_back_before(ranks, loss):
    assert ranks.run(2, in_parts, loss, 1) == ["", ""]
    first, last = ranks.run(2, in_parts, loss, 2)
    assert "looks at several samples of a batch" in last and "rank 1" in first
    assert "gpipe" in last


@pytest.mark.parametrize(("n", "loss"), [(4, "dice"), (2, "masked by outputs")])
def test_a_loss_of_the_whole_batch_trains_where_a_schedule_goes_back_after(ranks, n, loss):
    options = TWO | {"schedule": "gpipe", "micro_batches": 3}
    compare(ranks, n, mlp, options, ADAM, functools.partial(compiled_with, loss))
