"""Forward and backward, cut into functions of their own, compute what a tape computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.pipeline.models import numbers, residual
from tests.support.cases import latin
from tnt_notebook.parallel.layer_graph.parts import parts_of


def dense() -> keras.Model:
    hidden = [layers.BatchNormalization(), layers.Dropout(0.3, seed=1)]
    return keras.Sequential([keras.Input((8,)), layers.Dense(16, "relu"), *hidden, layers.Dense(4)])


def recurrent() -> keras.Model:
    """Loops in the graph."""
    return keras.Sequential(
        [keras.Input((5, 8)), layers.LSTM(7, return_sequences=True), layers.GRU(3)]
    )


def embedded() -> keras.Model:
    """A sparse gradient, a mask, and an input without gradient."""
    first = layers.Embedding(11, 4, mask_zero=True)
    return keras.Sequential(
        [keras.Input((5,), dtype="int32"), first, layers.LSTM(4), layers.Dense(3)]
    )


def attention() -> keras.Model:
    x = keras.Input((6, 8))
    return keras.Model(x, layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x)))


KINDS = {
    "dense": (dense, numbers(6, 8)),
    "residual": (residual, numbers(3, 6, 6, 3)),
    "recurrent": (recurrent, numbers(6, 5, 8)),
    "embedded": (embedded, np.random.default_rng(1).integers(0, 11, (6, 5)).astype("int32")),
    "attention": (attention, numbers(3, 6, 8)),
}


def kept_by_a_loop(dropout):
    """Whether forward keeps lists of a loop for a backward that computes it again."""
    layer = layers.LSTM(4, dropout=dropout, seed=1)
    layer.build((None, 5, 8))
    weights = [v.value for v in layer.trainable_variables]
    specs = [tf.TensorSpec((None, 5, 8))]
    parts = parts_of(lambda xs: [layer(xs[0], training=True)], specs, weights, "FB", True)
    return any(t.dtype == tf.variant for t in parts["F"].function.outputs)


def test_a_loop_that_only_reads_is_computed_again():
    assert not kept_by_a_loop(0.0) and not kept_by_a_loop(0.5)  # which draws before the loop


def differentiated(name, kinds, recompute):
    """(ours, a tape's) outputs, gradients and state."""
    make, batch = KINDS[name]
    keras.utils.set_random_seed(5)
    model = make()
    weights = [v.value for v in model.trainable_variables]
    state = [v.value for v in model.non_trainable_variables]
    before = [s.numpy() for s in state]
    x = tf.constant(batch)
    parts = parts_of(
        lambda xs: [model(xs[0], training=True)],
        [tf.TensorSpec((None, *x.shape[1:]), x.dtype)],
        weights,
        kinds,
        recompute,
    )
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x, training=True)
    dy = tf.random.stateless_normal(y.shape, (1, 2))
    dx, *dw = tape.gradient(y, [x, *weights], dy)
    after = [s.numpy() for s in state]
    for variable, value in zip(state, before, strict=True):
        variable.assign(value)

    values = {"x0": x, "dy0": dy}
    for kind in kinds:
        part = parts[kind]
        values.update(zip(part.gives, part.function(*(values[n] for n in part.takes)), strict=True))
        # State changes in the forward part only, also when that is computed again.
        for variable, value in zip(state, after, strict=True):
            np.testing.assert_allclose(variable, value, 1e-5, 1e-6)
    np.testing.assert_allclose(values["y0"], y, 1e-5, 1e-6)
    if x.dtype.is_floating:
        np.testing.assert_allclose(values["dx0"], dx, 1e-3, 1e-5)
    for i, gradient in enumerate(dw):
        ours = values.get(f"dw{i}")
        if ours is None:
            rows = tf.constant(weights[i].shape, tf.int64)
            ours = tf.IndexedSlices(values[f"dw{i}.values"], values[f"dw{i}.indices"], rows)
        np.testing.assert_allclose(
            tf.convert_to_tensor(ours), tf.convert_to_tensor(gradient), 1e-3, 1e-5
        )
    return {kind: len(part.gives) for kind, part in parts.items()}


@pytest.mark.parametrize(
    ("name", "kinds", "recompute"), latin(KINDS, ["FB", "FIW"], [False, True], times=2)
)
def test_parts_compute_what_a_tape_computes(ranks, name, kinds, recompute):
    ranks.run(1, differentiated, name, kinds, recompute)


def test_recomputation_saves_nothing_but_inputs_and_seeds(ranks):
    (saving,) = ranks.run(1, differentiated, "dense", "FB", False)
    (again,) = ranks.run(1, differentiated, "dense", "FB", True)
    assert saving["F"] > 5 and again["F"] == 2  # the output, and what the dropout mask comes from


def of_other_sizes():
    model = dense()
    parts = parts_of(lambda xs: [model(xs[0], training=False)], [tf.TensorSpec((None, 8))])
    assert list(parts) == ["F"]
    return [parts["F"].function(numbers(n, 8))[0].shape.as_list() for n in (1, 7)]


def test_one_function_serves_all_batch_sizes(ranks):
    assert ranks.run(1, of_other_sizes) == [[[1, 4], [7, 4]]]
