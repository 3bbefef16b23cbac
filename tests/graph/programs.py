"""Random small programs: losses and gradients in which samples meet in all sorts of ways."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

ops = keras.ops

#: Sizes of dimensions; "B" is that of the batch.
Shape = tuple[int | str, ...]
Value = tuple[Any, Shape]

FEATURES, STEPS, CLASSES = 4, 3, 5


def data(seed: int, rows: int) -> list[np.ndarray]:
    """Of a batch: numbers, steps of numbers, and labels; -1 is to be ignored."""
    draw = np.random.default_rng(seed)
    return [
        draw.normal(size=(rows, FEATURES)),
        draw.normal(size=(rows, STEPS, FEATURES)),
        draw.integers(-1, CLASSES, rows),
    ]


SPECS = [
    tf.TensorSpec((None, FEATURES), tf.float64),
    tf.TensorSpec((None, STEPS, FEATURES), tf.float64),
    tf.TensorSpec((None,), tf.int64),
]


class Program:
    """A program that a seed chooses.

    Called with the tensors of a batch, it gives a loss, values beside it, and gradients.
    """

    def __init__(self, seed: int, length: int = 6) -> None:
        self.seed, self.length = seed, length
        draw = np.random.default_rng(seed)
        self.weights = [
            tf.Variable(draw.normal(size=(FEATURES, FEATURES))),
            tf.Variable(draw.normal(size=(CLASSES, FEATURES))),
        ]
        self.said: list[str] = []

    def __call__(self, x: Any, steps: Any, labels: Any) -> list[Any]:
        choose, self.said = random.Random(self.seed), []
        with tf.GradientTape() as tape:
            matrix, table = (tf.convert_to_tensor(weight) for weight in self.weights)
            rows = tf.shape(x)[0]
            values: list[Value] = [
                (ops.tanh(x @ matrix), ("B", FEATURES)),
                (ops.tanh(steps @ matrix), ("B", STEPS, FEATURES)),
                (tf.gather(table, tf.maximum(labels, 0)), ("B", FEATURES)),
                (tf.cast(labels >= 0, tf.float64), ("B",)),
                (tf.cast(rows, tf.float64), ()),
                (tf.cast(tf.range(rows), tf.float64) / 7, ("B",)),
            ]
            for _ in range(self.length):
                name = choose.choice([*STEPS_OF])
                made = STEPS_OF[name](choose, values)
                if made is not None:
                    self.said.append(f"{name} -> {made[1]}")
                    value, shape = made
                    if choose.random() < 0.3:
                        value = value / (1 + ops.max(ops.abs(tf.stop_gradient(value))))
                    else:
                        value = ops.tanh(value)
                    values.append((value, shape))
            loss = ops.mean(values[0][0] * 0.1)
            for value, _ in values[3:]:
                loss += ops.mean(value) if choose.random() < 0.7 else ops.sum(value) * 0.1
        gradients = tape.gradient(
            loss, self.weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        beside = [value for value, _ in values[-2:]]
        return [loss, *gradients, *beside]


def _any(choose: random.Random, values: list[Value], least: int = 0) -> Value:
    fitting = [value for value in values if len(value[1]) >= least]
    # What was made last is taken most.
    return choose.choice(fitting[-3:] if choose.random() < 0.6 else fitting)


def _axes(choose: random.Random, shape: Shape) -> tuple[int, ...]:
    count = choose.randint(1, len(shape))
    return tuple(sorted(choose.sample(range(len(shape)), count)))


def _reduced(function: Callable[..., Any]) -> Callable[..., Value]:
    def step(choose: random.Random, values: list[Value]) -> Value:
        value, shape = _any(choose, values, 1)
        axes, keep = _axes(choose, shape), choose.random() < 0.4
        left = tuple(
            1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes
        )
        return function(value, axis=axes, keepdims=keep), left

    return step


def _with_one(function: Callable[..., Any]) -> Callable[..., Value]:
    """Along one dimension, which is kept."""

    def step(choose: random.Random, values: list[Value]) -> Value:
        value, shape = _any(choose, values, 1)
        return function(value, axis=choose.randrange(len(shape))), shape

    return step


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    result: list[int | str] = []
    for i in range(1, max(len(a), len(b)) + 1):
        one, other = (s[-i] if i <= len(s) else 1 for s in (a, b))
        if one != other and 1 not in (one, other):
            return None
        result.append(other if one == 1 else one)
    return tuple(result[::-1])


def _both(function: Callable[..., Any]) -> Callable[..., Value | None]:
    def step(choose: random.Random, values: list[Value]) -> Value | None:
        for _ in range(8):
            (a, left), (b, right) = _any(choose, values), _any(choose, values)
            shape = _broadcast(left, right)
            if shape is not None:
                return function(a, b), shape
        return None

    return step


def _outer(choose: random.Random, values: list[Value]) -> Value | None:
    """Samples times samples."""
    a, b = ((v, s) for v, s in (_any(choose, values, 2), _any(choose, values, 2)))
    if len(a[1]) != 2 or len(b[1]) != 2 or a[1][1] != b[1][1]:
        return None
    return a[0] @ ops.transpose(b[0]), (a[1][0], b[1][0])


def _inner(choose: random.Random, values: list[Value]) -> Value | None:
    a, b = _any(choose, values, 2), _any(choose, values, 2)
    if len(a[1]) != 2 or len(b[1]) != 2 or a[1][0] != b[1][0]:
        return None
    return ops.transpose(a[0]) @ b[0], (a[1][1], b[1][1])


def _transposed(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values, 2)
    order = choose.sample(range(len(shape)), len(shape))
    return ops.transpose(value, order), tuple(shape[i] for i in order)


def _merged(choose: random.Random, values: list[Value]) -> Value | None:
    """The first two dimensions as one, worked on, and taken apart again."""
    value, shape = _any(choose, values, 3)
    if any(size == "B" for size in shape[1:]) and shape[0] == "B":
        return None
    flat = ops.reshape(value, (-1, *ops.shape(value)[2:]))
    return ops.reshape(ops.exp(-(flat**2)), ops.shape(value)), shape


def _expanded(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values)
    axis = choose.randint(0, len(shape))
    return ops.expand_dims(value, axis), (*shape[:axis], 1, *shape[axis:])


def _doubled(choose: random.Random, values: list[Value]) -> Value | None:
    """Two batches one after another, and the sum of the halves."""
    value, shape = _any(choose, values, 1)
    if shape[0] != "B":
        return None
    both = ops.concatenate([value, ops.sin(value)], 0)
    first, second = ops.split(ops.square(both) - both, 2, 0)
    return first * second, shape


def _masked_mean(choose: random.Random, values: list[Value]) -> Value:
    value, _ = _any(choose, values, 1)
    kept = ops.cast(value > 0, "float64")
    return ops.sum(value * kept) / ops.maximum(ops.sum(kept), 1.0), ()


def _taken(choose: random.Random, values: list[Value]) -> Value:
    """Some entries along a dimension, in another order."""
    value, shape = _any(choose, values, 1)
    axis = choose.randrange(len(shape))
    return ops.flip(value, axis), shape


def _by_samples(choose: random.Random, values: list[Value]) -> Value:
    value, _ = _any(choose, values, 1)
    return ops.sum(value) / tf.cast(tf.size(value), tf.float64), ()


def _normalized(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values, 1)
    axes = _axes(choose, shape)
    mean = ops.mean(value, axes, keepdims=True)
    variance = ops.var(value, axes, keepdims=True)
    return (value - mean) * tf.math.rsqrt(variance + 0.1), shape


def _scanned(choose: random.Random, values: list[Value]) -> Value:
    """A loop over the first dimension, unless that has the samples; then along the last one."""
    value, shape = _any(choose, values, 2)
    axis = 0 if shape[0] != "B" or choose.random() < 0.2 else len(shape) - 1
    moved = ops.moveaxis(value, axis, 0)
    result = tf.scan(lambda before, now: tf.tanh(0.5 * before + now), moved)
    return ops.moveaxis(result, 0, axis), shape


def _either(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values)
    result = tf.cond(ops.sum(value) > 0, lambda: value * 2.0, lambda: value + ops.mean(value))
    return tf.ensure_shape(result, value.shape), shape


def _dropped(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values, 1)
    seed = choose.randrange(1000)
    if choose.random() < 0.5:
        return keras.random.dropout(value, 0.3, seed=seed), shape
    draw = choose.choice([tf.random.stateless_normal, tf.random.stateless_uniform,
                          tf.random.stateless_truncated_normal])  # fmt: skip
    dtype = choose.choice([tf.float64, tf.float32, tf.bfloat16])
    noise = draw(tf.shape(value), (seed, 1), dtype=dtype)
    return value + tf.cast(noise, tf.float64), shape


def _some_samples(choose: random.Random, values: list[Value]) -> Value | None:
    """Of as many as there are."""
    value, shape = _any(choose, values, 2)
    if shape[0] != "B" or len(shape) != 2:
        return None
    kept = tf.boolean_mask(value, value[:, 0] > 0)
    return tf.reduce_sum(tf.square(kept), 0), shape[1:]


def _by_class(choose: random.Random, values: list[Value]) -> Value | None:
    value, shape = _any(choose, values, 2)
    if shape[0] != "B" or "B" in shape[1:]:
        return None
    labels = tf.cast(tf.range(tf.shape(value)[0]) % CLASSES, tf.int64)
    if choose.random() < 0.5:
        return tf.math.unsorted_segment_sum(value, labels, CLASSES), (CLASSES, *shape[1:])
    hot = tf.one_hot(labels, CLASSES, dtype=tf.float64)
    return tf.tensordot(hot, value, [[0], [0]]), (CLASSES, *shape[1:])


def _mapped(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values, 1)
    return tf.map_fn(lambda each: tf.sin(each) + tf.reduce_mean(each), value), shape


def _with_own_gradient(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values)

    @tf.custom_gradient
    def limited(x: Any) -> Any:
        return tf.identity(x), lambda dy: tf.clip_by_norm(dy, 0.01)

    return limited(value), shape


def _part(choose: random.Random, values: list[Value]) -> Value:
    """All but the first, and once more the last."""
    value, shape = _any(choose, values, 1)
    axis = choose.randrange(len(shape))
    at = [slice(None)] * axis
    return ops.concatenate(
        [value[(*at, slice(1, None))], value[(*at, slice(-1, None))]], axis
    ), shape


def _convolved(choose: random.Random, values: list[Value]) -> Value | None:
    value, shape = _any(choose, values, 3)
    if len(shape) != 3 or shape[2] == "B":
        return None
    kernel = tf.reshape(tf.linspace(tf.constant(-0.4, tf.float64), 0.5, 3 * shape[2] * 2),
                        (3, shape[2], 2))  # fmt: skip
    return tf.nn.conv1d(value, kernel, 1, "SAME"), (*shape[:2], 2)


def _crossentropy(choose: random.Random, values: list[Value]) -> Value:
    """Of classes along the last dimension, which may be the samples."""
    value, shape = _any(choose, values, 2)
    classes = tf.shape(value)[-1]
    labels = tf.cast(ops.abs(ops.sum(value, -1)) * 4, tf.int32) % classes
    if choose.random() < 0.5:
        made = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, value)
    else:
        likely = tf.one_hot(labels, classes, dtype=value.dtype)
        made = tf.nn.softmax_cross_entropy_with_logits(likely, value)
    return tf.ensure_shape(made, value.shape[:-1]), shape[:-1]


def _likeliest(choose: random.Random, values: list[Value]) -> Value:
    value, shape = _any(choose, values, 1)
    axis = choose.randrange(len(shape))
    found = choose.choice([ops.argmax, ops.argmin])(ops.round(2 * value), axis=axis)
    return tf.cast(found, tf.float64) / 5, shape[:axis] + shape[axis + 1 :]


STEPS_OF: dict[str, Callable[[random.Random, list[Value]], Value | None]] = {
    "sum": _reduced(ops.sum),
    "mean": _reduced(ops.mean),
    "max": _reduced(ops.max),
    "min": _reduced(ops.min),
    "variance": _reduced(ops.var),
    "logsumexp": _reduced(ops.logsumexp),
    "product": _reduced(
        lambda v, axis, keepdims: tf.reduce_prod(ops.tanh(v) + 1.5, axis, keepdims)
    ),
    "norm": _reduced(lambda v, axis, keepdims: ops.sqrt(ops.sum(v * v, axis, keepdims) + 0.1)),
    "running sum": _with_one(ops.cumsum),
    "sorted": _with_one(ops.sort),
    "softmax": _with_one(ops.softmax),
    "sum of two": _both(ops.add),
    "product of two": _both(ops.multiply),
    "quotient": _both(lambda a, b: a / (1.5 + ops.abs(b))),
    "chosen": _both(lambda a, b: ops.where(a > b, a, 0.5 * b)),
    "larger": _both(ops.maximum),
    "outer": _outer,
    "inner": _inner,
    "transposed": _transposed,
    "merged": _merged,
    "expanded": _expanded,
    "doubled": _doubled,
    "masked mean": _masked_mean,
    "flipped": _taken,
    "by samples": _by_samples,
    "normalized": _normalized,
    "scanned": _scanned,
    "either": _either,
    "dropped": _dropped,
    "some samples": _some_samples,
    "by class": _by_class,
    "mapped": _mapped,
    "own gradient": _with_own_gradient,
    "part": _part,
    "convolved": _convolved,
    "crossentropy": _crossentropy,
    "likeliest": _likeliest,
}
