"""fit, evaluate and predict of a model in stages give what one process gives."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, assert_identical, assert_same, train
from tests.pipeline.models import MODELS, batch_for, mlp, numbers
from tests.support.cases import latin
from tnt_notebook import comm
from tnt_notebook.errors import ModelError, PeerError, ScheduleError
from tnt_notebook.parallel.pipeline.graph import graph_of
from tnt_notebook.plan.families import FAMILIES

SAMPLES = 25  # in batches of 10 the last is smaller than the others


def cut_evenly(model, parts):
    """Names of the layers that begin equal parts; a layer that is called again begins no part."""
    names = [call.name for call in graph_of(model).calls]
    begins = [names[s * len(names) // parts] for s in range(1, parts)]
    assert all(names.index(b) == s * len(names) // parts for s, b in enumerate(begins, 1))
    return begins


def run(name, distributed, options, optimizer="Adam", optimizer_options=None, auto=False):
    optimizer_options = optimizer_options or {"learning_rate": 0.01}
    make = MODELS[name]
    several = name == "several inputs and outputs"

    def compiled() -> keras.Model:
        model = make()
        model.compile(
            getattr(keras.optimizers, optimizer)(**optimizer_options),
            {"early": "mse", "late": "mae"} if several else "mse",
            loss_weights={"early": 0.3, "late": 2.0} if several else None,
            metrics={"early": ["mae"], "late": ["mse"]} if several else ["mae"],
        )
        return model

    def pipeline(model):
        per_rank = FAMILIES[options.get("schedule", "1f1b")].stages_per_rank
        auto_too = name == "nested"  # its shared layer comes twice, so names do not say where
        cut = "auto" if auto or auto_too else cut_evenly(model, options["stages"] * per_rank)
        return tnt.Pipeline(**options, cut_at=cut)

    template = make()
    x = batch_for(template, SAMPLES)
    y = [numbers(SAMPLES, *o.shape[1:], seed=9 + i) for i, o in enumerate(template.outputs)]
    x = x if len(x) > 1 else x[0]
    y = dict(zip(("early", "late"), y, strict=True)) if several else y[0]
    weights = np.abs(numbers(SAMPLES, seed=5))
    fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2, "shuffle": True}
    fit["validation_data"] = (x, y)
    if name not in ("several inputs and outputs", "unet", "transformer"):
        fit["sample_weight"] = weights
    return train(compiled, fit, distributed, {"x": x, "y": y, "batch_size": 7}, pipeline)


_plain: dict[tuple, Outcome] = {}


def compare(ranks, n, name, options, *more, same_parts=False, **tolerance):
    """With one process that sees whole batches, or micro-batches of the same size."""
    parts = {"stages": 1, "micro_batches": options["micro_batches"]} if same_parts else {}
    key = (name, str(parts), *map(str, more[:2]))
    if key not in _plain:
        (_plain[key],) = ranks.run(1, run, name, same_parts, parts, *more)
    outcomes = ranks.run(n, run, name, True, options, *more)
    assert_same(outcomes[0], _plain[key], **tolerance)
    assert_identical(outcomes)
    for ours, theirs in zip(outcomes[0].optimizer, _plain[key].optimizer, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-6)


@pytest.mark.parametrize(
    ("name", "schedule", "n", "micro_batches"),
    latin(MODELS, FAMILIES, (4, 2, 3), (4, 1, 7, 2, 5, 3, 8, 6), times=2),
)
def test_equality(ranks, name, schedule, n, micro_batches):
    n = min(n, len(graph_of(MODELS[name]()).calls) // FAMILIES[schedule].stages_per_rank)
    options = {"stages": n, "micro_batches": micro_batches, "schedule": schedule}
    if name == "residual":  # batch norm sees micro-batches: so it must in one process
        compare(ranks, n, name, options, same_parts=True, rtol=1e-4, atol=1e-5)
    else:
        compare(ranks, n, name, options)


@pytest.mark.parametrize("placement", ["pipeline", "replicas"])
def test_replicas_of_a_pipeline(ranks, placement):
    options = {"stages": 2, "micro_batches": 4, "placement": placement}
    compare(ranks, 4, "regularized", options)


@pytest.mark.core
def test_more_micro_batches_than_samples(ranks):
    # Of the last batch of 5, the replicas have 2 and 3 samples, and so empty micro-batches.
    compare(ranks, 4, "mlp", {"stages": 2, "micro_batches": 8})


OPTIMIZERS = {
    "SGD": {"learning_rate": 0.1, "momentum": 0.9, "clipnorm": 0.05},
    "AdamW": {"global_clipnorm": 0.05},
    "RMSprop": {"use_ema": True, "ema_overwrite_frequency": 3},
    "Lion": {"learning_rate": 0.01, "use_ema": True, "ema_overwrite_frequency": None},
    "Adagrad": {"gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(ranks, name):
    options = {"stages": 2, "micro_batches": 2, "recompute": True}
    compare(ranks, 2, "mlp", options, name, OPTIMIZERS[name], atol=1e-5)


@pytest.mark.core
def test_shared_weights_count_once_in_the_norm_of_all(ranks):
    options = {"stages": 2, "micro_batches": 3}
    compare(
        ranks, 2, "transformer", options, "SGD", {"learning_rate": 1.0, "global_clipnorm": 0.01}
    )


def test_a_cut_that_is_found(ranks):
    compare(ranks, 2, "unet", {"stages": 2}, "Adam", None, True)


def several_steps_at_a_time(stages, count):
    """Of the 3 batches, Keras runs ``count`` in one call of the train function."""

    def compiled():
        model = mlp()
        model.compile("adam", "mse", metrics=["mae"], steps_per_execution=count)
        return model

    def pipeline(model):
        return tnt.Pipeline(stages, 3, cut_at=cut_evenly(model, stages))

    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3, seed=9)
    fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2, "validation_data": (x, y)}
    return train(compiled, fit, stages > 0, {"x": x, "y": y, "batch_size": 7}, pipeline)


@pytest.mark.core
@pytest.mark.parametrize(("n", "count"), latin((2, 4), (2, 3)))
def test_several_steps_per_execution(ranks, n, count):
    (plain,) = ranks.run(1, several_steps_at_a_time, 0, count)
    outcomes = ranks.run(n, several_steps_at_a_time, 2, count)
    assert_same(outcomes[0], plain)
    assert_identical(outcomes)


def saved_and_loaded(folder):
    """A callback and the caller see the whole model; it is Keras's own."""
    model = mlp()
    model.compile("adam", "mse")
    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3)
    wrapped = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=cut_evenly(model, 2)))
    checkpoint = keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.keras")
    wrapped.fit(x, y, epochs=2, verbose=0, callbacks=[checkpoint])
    wrapped.train_on_batch(x[:9], y[:9])
    tnt.world().barrier()  # rank 0 writes
    loaded = keras.models.load_model(f"{folder}/2.keras")
    loaded.train_on_batch(x[:9], y[:9])
    for ours, theirs in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6)


@pytest.mark.core
def test_checkpoints_have_the_whole_model_and_its_optimizer(ranks, tmp_path):
    ranks.run(2, saved_and_loaded, str(tmp_path))


def failed_and_made_whole():
    model = mlp()
    model.compile("adam", "mse")
    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3)
    wrapped = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=cut_evenly(model, 2)))

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
    assert first == ""  # the callback saw it whole
    assert "is on rank 0: while a model trains in a pipeline" in second
    for a, b in zip(weights, same, strict=True):
        np.testing.assert_array_equal(a, b)


def refused():
    x, y = numbers(8, 8), numbers(8, 3)
    texts = []

    def attempt(pipeline, make=mlp, loss="mse"):
        model = make()
        model.compile("sgd", loss)
        with pytest.raises((ModelError, ScheduleError)) as raised:
            tnt.Model(model, pipeline=pipeline).fit(x, y, verbose=0)
        texts.append(str(raised.value))

    class Own(keras.Model):
        def train_step(self, data):
            return {}

    def own_step():
        inputs = keras.Input((8,))
        return Own(inputs, keras.layers.Dense(3)(inputs))

    attempt(tnt.Pipeline(3))
    attempt(tnt.Pipeline(2, cut_at=["no such layer"]))
    attempt(tnt.Pipeline(2, schedule="2f2b"))
    attempt(tnt.Pipeline(2, cut_at=[]))
    attempt(tnt.Pipeline(2, 7000))
    attempt(tnt.Pipeline(2), own_step)
    attempt(tnt.Pipeline(2), loss=keras.losses.MeanSquaredError("mean_with_sample_weight"))
    return texts


def test_what_cannot_be_done_is_said_before_training(ranks):
    here, there = ranks.run(2, refused)
    assert here == there
    ranks_, layer, schedule, parts, many, step, loss = here
    assert "2 ranks cannot form pipelines of 3 stages" in ranks_
    assert "cut_at names 'no such layer'" in layer
    assert "There is no schedule '2f2b'" in schedule
    assert "cut_at makes 1 parts of the model" in parts
    assert "7000 micro-batches: that is more than there are channels" in many
    assert "Own has a train_step of its own" in step
    assert "reduction='mean_with_sample_weight'" in loss
