"""Trains a model in stages, and with Keras alone: what comes of it is the same."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel import outcome
from tests.parallel.outcome import Outcome, close, train
from tests.pipeline.models import batch_for, numbers, several_inputs_and_outputs
from tnt_notebook.errors import ModelError, ScheduleError
from tnt_notebook.parallel.layer_graph.graph import graph_of
from tnt_notebook.plan.families import FAMILIES

SAMPLES = 25  # in batches of 10 the last is smaller than the others

Make = Callable[[], keras.Model]
Options = Mapping[str, Any]

ADAM = ("Adam", {"learning_rate": 0.01})
OF_TWO_OUTPUTS = {
    "loss": {"early": "mse", "late": "mae"},
    "loss_weights": {"early": 0.3, "late": 2.0},
    "metrics": {"early": ["mae"], "late": ["mse"]},
}


def cut_evenly(model: keras.Model, parts: int) -> list[str]:
    """Names of the layers that begin equal parts; a layer that is called again begins no part."""
    names = [call.name for call in graph_of(model).calls]
    begins = [names[s * len(names) // parts] for s in range(1, parts)]
    assert all(names.index(b) == s * len(names) // parts for s, b in enumerate(begins, 1))
    return begins


def pipeline_of(model: keras.Model, options: Options) -> tnt.Pipeline:
    """In 3 micro-batches; in as many stages as ``cut_at`` makes, which may be ``"evenly"``."""
    cut = options.get("cut_at", "auto")
    if cut == "evenly":
        per_rank = FAMILIES[options.get("schedule", "1f1b")].stages_per_rank
        cut = cut_evenly(model, options["stages"] * per_rank)
    return tnt.Pipeline(**{"stages": len(cut) + 1, "micro_batches": 3, **options, "cut_at": cut})


def trained(
    make: Make,
    options: Options | None,
    optimizer: Any = ADAM,
    compiled: Any = None,
    evaluated: bool = True,
) -> Outcome:
    """Fits, evaluates and predicts.

    Args:
        options: of the pipeline, and ``shares``; ``None``: with Keras alone.
        optimizer: its name, or what makes it, and options.
        compiled: more options of ``compile``, or what makes them.
        evaluated: False: it only fits, without validation.
    """
    kind, arguments = optimizer
    several = make is several_inputs_and_outputs
    usual = OF_TWO_OUTPUTS if several else {"loss": "mse", "metrics": ["mae"]}

    def model() -> keras.Model:
        made = make()
        more = compiled() if callable(compiled) else compiled or {}
        optimizer = kind if callable(kind) else getattr(keras.optimizers, kind)
        made.compile(optimizer(**arguments), **{**usual, **more})
        return made

    template = make()
    x, outputs = batch_for(template, SAMPLES), template.outputs
    y = [numbers(SAMPLES, *o.shape[1:], seed=9 + i) for i, o in enumerate(outputs)]
    data = {
        "x": x if len(x) > 1 else x[0],
        "y": dict(zip(("early", "late"), y, strict=True)) if several else y[0],
    }
    fit = {**data, "batch_size": 10, "epochs": 2}
    if evaluated:
        fit["validation_data"] = tuple(data.values())
    if len(outputs) == 1 and len(outputs[0].shape) == 2:
        fit["sample_weight"] = np.abs(numbers(SAMPLES, seed=5))
    of_pipeline = {name: value for name, value in (options or {}).items() if name != "shares"}
    in_stages = None if options is None else lambda model: pipeline_of(model, of_pipeline)
    evaluate = {**data, "batch_size": 7} if evaluated else None
    more = {"shares": options.get("shares")} if options else None
    return train(model, fit, options is not None, evaluate, in_stages, more)


def refused(make: Make, options: Options, x: Any = None) -> str:
    """Why this rank does not train the model in two stages, or as many as the options say."""
    keras.utils.clear_session(free_memory=False)  # names of values count from here, on all ranks
    model = make()
    model.compile("sgd", "mse")
    x = numbers(8, 8) if x is None else tf.constant(x)
    with pytest.raises((ModelError, ScheduleError)) as raised:
        stages = tnt.Model(model, pipeline=tnt.Pipeline(**{"stages": 2, **options}))
        stages.fit(x, numbers(len(x), 3), verbose=0)
    return str(raised.value)


def compare(
    ranks: Any,
    n: int,
    make: Make,
    options: Options,
    optimizer: Any = ADAM,
    compiled: Any = None,
    evaluated: bool = True,
    same_parts: bool = False,
    **tolerance: float,
) -> None:
    """With one process that sees whole batches, or micro-batches of the same size.

    Args:
        optimizer, compiled, evaluated: see `trained`.
    """
    whole, how = None, (optimizer, compiled, evaluated)
    if same_parts:
        parts = options.get("micro_batches", 3) * (n // options["stages"])
        alone = {"stages": 1, "cut_at": (), "schedule": "1f1b", "micro_batches": parts}
        whole = {**options, **alone}
    theirs = (make, whole, *how)
    ours, expected = outcome.compare(
        ranks, n, trained, make, options, *how, alone=theirs, **tolerance
    )
    close(ours.optimizer, expected.optimizer, 1e-4, 1e-6)
