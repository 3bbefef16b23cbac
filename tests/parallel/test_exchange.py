"""Buckets, their overlap with backpropagation, and exchanges of one's own."""

from __future__ import annotations

import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tnt_notebook as tnt
from tests.parallel.models import classification, mlp
from tests.parallel.outcome import close
from tnt_notebook import comm
from tnt_notebook.comm import ops
from tnt_notebook.comm.channels import TRAINING
from tnt_notebook.errors import ModelError
from tnt_notebook.plan.buckets import BucketSizes, buckets_of
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.telemetry.events import EVENT_KINDS


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from(["float32", "float16"]))),
    st.integers(1, 400),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_every_variable_is_in_one_bucket_of_its_dtype_under_the_cap(variables, cap, first, last):
    sizes, kinds = [s for s, _ in variables], [k for _, k in variables]
    caps = BucketSizes(cap, first, last)
    buckets = buckets_of(sizes, kinds, caps)
    assert [i for bucket in buckets for i in bucket] == list(range(len(sizes)))[::-1]
    for number, bucket in enumerate(buckets):
        assert len({kinds[i] for i in bucket}) == 1
        limit = first if number == 0 else max(cap, last)
        assert len(bucket) == 1 or sum(sizes[i] for i in bucket) <= max(limit, last)


def test_first_and_last_buckets_are_small():
    caps = BucketSizes(40, 20, 10)
    assert buckets_of([10] * 10, ["f"] * 10, caps) == [[9, 8], [7, 6, 5, 4], [3, 2, 1], [0]]


def deep() -> keras.Model:
    layers = [keras.layers.Dense(512, "relu") for _ in range(12)]
    model = keras.Sequential([keras.Input((512,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def traced_step() -> np.ndarray:
    keras.utils.set_random_seed(1)
    model = tnt.Model(deep(), bucket_mb=1)
    x = np.ones((256, 512), "float32")
    began = time.monotonic_ns()  # the clock of the trace; earlier tests have left events in it
    model.fit(x, x[:, 0], batch_size=64, epochs=3, verbose=0)
    trace = comm.world().trace()
    return trace[trace["begin_ns"] > began]


def test_a_bucket_is_exchanged_before_the_last_gradient_exists(ranks):
    for trace in ranks.run(2, traced_step):
        ready, exchange = (
            {
                channel: trace[(trace["kind"] == EVENT_KINDS.index(kind)) & on]
                for channel in map(TRAINING.__getitem__, range(12))
                for on in [trace["channel"] == channel]
            }
            for kind in ("ready", "exchange")
        )
        # Channel 0 of a step is the first bucket, 11 more follow; take the steps one by one.
        steps = len(ready[TRAINING.first])
        assert steps == 12
        begun = exchange[TRAINING.first]["begin_ns"]
        last = np.max([ready[c]["begin_ns"] for c in list(ready)[:12]], axis=0)
        # Were it tied to the end, it would be so in no step; a busy machine may delay a few.
        assert (begun < last).sum() > steps / 2


def halved(gradients, variables, scale, over):
    """What a researcher would write: one function."""
    summed = ops.allreduce([tf.convert_to_tensor(g) for g in gradients], scale, over=over)
    return [0.5 * g for g in summed]


def own_exchange(use: bool) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model = mlp(keras.optimizers.SGD(0.1 if use else 0.05))
    wrapped = tnt.Model(model, exchange=halved if use else None)
    wrapped.fit(*classification(), batch_size=16, epochs=1, verbose=0, shuffle=False)
    return model.get_weights()


def test_an_exchange_is_one_function(ranks):
    half_rate = ranks.run(2, own_exchange, False)[0]
    for weights in ranks.run(2, own_exchange, True):
        close(weights, half_rate, 1e-5, 1e-6)


def exchanged_in_a_cell() -> tuple[int, str]:
    calls = 0

    def counted(gradients, variables, scale, over):
        nonlocal calls
        calls += 1
        return ops.allreduce([tf.convert_to_tensor(g) for g in gradients], scale, over=over)

    model = tnt.Model(mlp(), exchange=counted)
    with tnt.distributed():
        model.fit(*classification(), verbose=0)
    with pytest.raises(ModelError) as raised, tnt.distributed(pipeline=tnt.Pipeline(stages=2)):
        model.fit(*classification(), verbose=0)
    comm.world().recover()
    return calls, str(raised.value)


def test_what_a_model_was_given_holds_in_a_cell_too(ranks):
    for calls, said in ranks.run(2, exchanged_in_a_cell):
        assert calls and "is not a pipeline, but the cell asks for one" in said
    with pytest.raises(ValueError, match="one of exchange, bucket_mb"):
        FitOptions(exchange="allreduce", bucket_mb=1)
