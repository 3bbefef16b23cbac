"""Floats as a few bits each, or few of them, to send less: see kernels/elements/codes.h for the
formats.

One bit an element: the mean of the elements below 0, and that of the others, in each bucket of 512
(Seide et al., Interspeech 2014). 2, 4 or 8 bits: levels of the largest magnitude in the bucket,
rounded by chance, so that the mean of what is decoded is the value (Alistarh et al., QSGD, 2017).
"""

from __future__ import annotations

import tensorflow as tf

from tnt_notebook.comm.ops import library

#: Bits of an element.
WIDTHS = (1, 2, 4, 8)

_BUCKET = 512


def encoded_bytes(count: int, bits: int) -> int:
    """Bytes of so many encoded elements."""
    header = 8 if bits == 1 else 4
    whole, rest = divmod(count, _BUCKET)
    return whole * (header + _BUCKET * bits // 8) + (header + -(-rest * bits // 8) if rest else 0)


@tf.autograph.experimental.do_not_convert
def encode(values: tf.Tensor, bits: int, seed: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
    """Codes of a float32 tensor, uint8 of one axis; and what they leave out, of its shape.

    Args:
        bits: one of :data:`WIDTHS`.
        seed: of the chance; of its bits 32 count.
    """
    with tf.device("/CPU:0"):
        codes, left = library().tnt_encode(values=values, seed=tf.cast(seed, tf.int64), bits=bits)
    codes.set_shape([encoded_bytes(values.shape.num_elements(), bits)])
    return codes, tf.ensure_shape(left, values.shape)


@tf.autograph.experimental.do_not_convert
def decode_sum(codes: tf.Tensor, like: tf.Tensor, bits: int) -> tf.Tensor:
    """The sum of what several arrays of codes stand for, that follow each other.

    Args:
        like: float32, of the shape that each had.
    """
    with tf.device("/CPU:0"):
        summed: tf.Tensor = library().tnt_decode_sum(codes=codes, like=like, bits=bits)
    return tf.ensure_shape(summed, like.shape)


@tf.autograph.experimental.do_not_convert
def largest(values: tf.Tensor, count: int) -> tf.Tensor:
    """Where the elements of largest magnitude are in a float32 tensor of one axis, int32; of equal
    ones the first. In no particular order.

    Args:
        count: how many, at most as there are.
    """
    with tf.device("/CPU:0"):
        places: tf.Tensor = library().tnt_largest(values=values, count=count)
    return tf.ensure_shape(places, [count])
