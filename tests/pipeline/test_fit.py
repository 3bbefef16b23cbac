"""fit, evaluate and predict of a model in stages give what one process gives."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, assert_identical, assert_same, train
from tests.pipeline.models import MODELS, batch_for, mlp, numbers
from tnt_notebook import choices
from tnt_notebook.errors import ModelError, ScheduleError
from tnt_notebook.parallel.pipeline.families import FAMILIES
from tnt_notebook.parallel.pipeline.graph import graph_of

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
        per_rank = {"interleaved": 2, "zb-v": 2}.get(options.get("schedule", ""), 1)
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


def compare(ranks, n, name, options, *more, **tolerance):
    key = (name, *map(str, more[:2]))
    if key not in _plain:
        (_plain[key],) = ranks.run(1, run, name, False, {}, *more)
    outcomes = ranks.run(n, run, name, True, options, *more)
    assert_same(outcomes[0], _plain[key], **tolerance)
    assert_identical(outcomes)
    for ours, theirs in zip(outcomes[0].optimizer, _plain[key].optimizer, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "residual"])
def test_models(ranks, name, n):
    compare(ranks, n, name, {"stages": n, "micro_batches": 4})


@pytest.mark.parametrize("schedule", FAMILIES)
def test_schedules(ranks, schedule):
    compare(ranks, 2, "mlp", {"stages": 2, "micro_batches": 3, "schedule": schedule})


@pytest.mark.parametrize("placement", ["pipeline", "replicas"])
def test_replicas_of_a_pipeline(ranks, placement):
    options = {"stages": 2, "micro_batches": 4, "placement": placement}
    compare(ranks, 4, "regularized", options)


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


def test_a_cut_that_is_found(ranks):
    compare(ranks, 2, "unet", {"stages": 2}, "Adam", None, True)


def with_batch_norm(stages):
    """Statistics are those of micro-batches, so the reference is one rank with the same ones."""
    return run("residual", True, {"stages": stages, "micro_batches": 3})


def test_batch_norm_sees_micro_batches(ranks):
    (reference,) = ranks.run(1, with_batch_norm, 1)
    for n in (2, 3):
        outcomes = ranks.run(n, with_batch_norm, n)
        assert_same(outcomes[0], reference, 1e-4, 1e-5)
        assert_identical(outcomes)


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


@pytest.mark.parametrize("count", [2, 3])
def test_several_steps_per_execution(ranks, count):
    (plain,) = ranks.run(1, several_steps_at_a_time, 0, count)
    for n in (2, 4):
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


def test_checkpoints_have_the_whole_model_and_its_optimizer(ranks, tmp_path):
    ranks.run(2, saved_and_loaded, str(tmp_path))


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


def test_the_notebook_knows_the_schedules():
    assert tuple(FAMILIES) == choices.SCHEDULES
