"""Blocks of initial values, without the whole: the numbers that the whole would have there.

Keras's random initializers draw with a counter: which number stands where follows from the seed and
its place alone, so that rows can be drawn some at a time, and cut. Taken are TensorFlow's ops that
draw with a key and a counter; the same from 2.16 to 2.21.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_stateless_random_ops_v2 as drawing

from tnt_notebook.keras.replaced import replaced

#: What cuts the block out of the whole.
Index = tuple[slice, ...]

#: Of the ops that draw, how far their counter moves for four numbers.
_MOVES = {
    "stateless_random_uniform_v2": 1, "stateless_random_normal_v2": 1,
    "stateless_truncated_normal_v2": 256,
}  # fmt: skip
#: Numbers that are drawn at a time, about.
_AT_ONCE = 1 << 20
#: Philox, with which TensorFlow draws on a CPU.
_PHILOX = 1

_RANDOM = keras.initializers
_DRAWN_ALONE = frozenset((
    _RANDOM.RandomNormal, _RANDOM.RandomUniform, _RANDOM.TruncatedNormal, _RANDOM.VarianceScaling,
    _RANDOM.GlorotNormal, _RANDOM.GlorotUniform, _RANDOM.HeNormal, _RANDOM.HeUniform,
    _RANDOM.LecunNormal, _RANDOM.LecunUniform,
))  # fmt: skip


def initial_block(
    initializer: Callable[..., Any], shape: Sequence[int], dtype: Any, index: Index
) -> tf.Tensor:
    """The block of an initial value: bit for bit what the whole would have there, on a CPU.

    Args:
        initializer: as ``keras.Variable`` takes it. Of those of Keras that draw each number by
            itself, or that are constant, the whole is never made; of others it is, and cut.
        shape: of the whole.
    """
    size = [len(range(*part.indices(n))) for part, n in zip(index, shape, strict=True)]
    kind = type(initializer)
    if kind is keras.initializers.Zeros:
        return tf.zeros(size, dtype)
    if kind is keras.initializers.Ones:
        return tf.ones(size, dtype)
    with tf.device("/CPU:0"):
        if kind in _DRAWN_ALONE and _draws_in_pieces(tf.as_dtype(dtype).name):
            with _cut(tuple(shape), index, _AT_ONCE):
                return initializer(shape, dtype=dtype)
        return tf.convert_to_tensor(initializer(shape, dtype=dtype))[index]


@contextlib.contextmanager
def _cut(whole: tuple[int, ...], index: Index, at_once: int) -> Iterator[None]:
    """Inside, who draws numbers of this shape gets those of the block."""

    def drawn(name: str, own: Callable[..., Any], shape: Any, **given: Any) -> Any:
        if tuple(np.asarray(shape)) != whole:
            return own(shape, **given)
        piece = functools.partial(_piece, own, _MOVES[name], given)
        return _block(piece, whole, index, at_once)

    with contextlib.ExitStack() as stack:
        for name in _MOVES:
            stack.enter_context(replaced(drawing, name, functools.partial(drawn, name)))
        yield


def _block(
    piece: Callable[[int, int], np.ndarray], shape: tuple[int, ...], index: Index, numbers: int
) -> tf.Tensor:
    """The block of an array of which pieces can be made, in C's order: lines of it, some at a time,
    of which those that are wanted are kept, and cut."""
    # Dimensions of which a line has all, so many that it is not too long.
    inner = next(k for k in range(len(shape) + 1) if math.prod(shape[k:]) <= numbers)
    ranges = [range(*part.indices(n)) for part, n in zip(index, shape, strict=True)]
    lines, length = math.prod(shape[:inner]), math.prod(shape[inner:])
    at_once = max(1, numbers // max(1, length))
    found = []
    for first in range(0, lines, at_once):
        last = min(first + at_once, lines)
        places = np.unravel_index(np.arange(first, last), shape[:inner]) if inner else ()
        kept = np.ones(last - first, bool)
        for place, wanted in zip(places, ranges, strict=False):
            kept &= (place >= wanted.start) & (place < wanted.stop)
        if kept.any():
            drawn = piece(first * length, last * length).reshape(-1, *shape[inner:])
            found.append(drawn[kept][(slice(None), *index[inner:])])
    return tf.convert_to_tensor(np.concatenate(found).reshape([len(r) for r in ranges]))


def _piece(
    own: Callable[..., Any], moves: int, given: dict[str, Any], first: int, last: int
) -> np.ndarray:
    """The numbers [first, last) of those that an op would draw."""
    group = first // 4
    counter = [int(n) for n in np.asarray(given["counter"])]
    at = (counter[0] | counter[1] << 64) + group * moves
    moved = tf.constant([at & (1 << 64) - 1, at >> 64 & (1 << 64) - 1], tf.uint64)
    drawn = own([last - 4 * group], **{**given, "counter": moved, "alg": _PHILOX})
    return np.asarray(drawn)[first - 4 * group :]


@functools.cache
def _draws_in_pieces(dtype: str) -> bool:
    """Whether this TensorFlow draws numbers of a dtype as it is said here."""
    shape, index = (5, 7), (slice(1, 4), slice(2, 6))
    for name in ("RandomUniform", "RandomNormal", "TruncatedNormal"):
        initializer = getattr(keras.initializers, name)(seed=3)
        whole = np.asarray(initializer(shape, dtype=dtype))
        with _cut(shape, index, at_once=9):
            block = np.asarray(initializer(shape, dtype=dtype))
        if block.tobytes() != np.ascontiguousarray(whole[index]).tobytes():
            return False
    return True
