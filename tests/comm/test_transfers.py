"""Tensors from one rank to another, by ops of a graph."""

import numpy as np
import pytest
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.comm import ops
from tnt_notebook.comm.channels import GRAPH

WORLDS = [None, {"transport": "mpi"}, {"nodes": (0, 0, 1)}]
SHAPES = [(), (1,), (0, 7), (3, 5), (1000, 33), (7, 50_000)]


def content(shape, dtype, sender):
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 100 + sender
    return tf.cast(tf.constant(numbers), dtype)


def send_around(shape, dtype, times):
    """Every rank sends to the next one, in a graph that runs several times."""
    w = comm.world()
    to, source = (w.rank + 1) % w.size, (w.rank - 1) % w.size

    @tf.function
    def around(tensor):
        with ops.channels(GRAPH.only(w.rank)):
            ops.send(tensor, to, "ring")
        with ops.channels(GRAPH.only(source)):
            return ops.receive(tensor.shape, tensor.dtype, source, "ring")

    for _ in range(times):
        received = around(content(shape, dtype, w.rank))
        np.testing.assert_array_equal(received, content(shape, dtype, source))


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_rank_sends_to_the_next(ranks, shape, world):
    ranks.run(3, send_around, shape, tf.float32, 3, world=world)


def many_at_once(count):
    """Rank 0 sends in one order, rank 1 takes in the other."""
    w = comm.world()

    @tf.function
    def run():
        result = []
        for i in range(count) if w.rank == 0 else reversed(range(count)):
            with ops.channels(GRAPH.only(i)):
                if w.rank == 0:
                    ops.send(tf.fill([i, 10_000], float(i)), 1)
                else:
                    result.append(tf.reduce_sum(ops.receive([i, 10_000], tf.float32, 0)))
        return result

    for _ in range(20):
        got = [float(x) for x in run()]
        assert got == ([] if w.rank == 0 else [1e4 * i * i for i in reversed(range(count))])


@pytest.mark.parametrize("world", WORLDS[:2], ids=str)
def test_receives_hold_no_thread(ranks, world):
    # More than TensorFlow has threads; and a receive that waits delays nobody.
    ranks.run(2, many_at_once, 40, world=world)


def of_another_kind(sent, wanted, label):
    """Rank 0 sends one shape and dtype, rank 1 expects another."""
    w = comm.world()
    with pytest.raises(tf.errors.OpError) as e, ops.channels():
        if w.rank == 0:
            ops.send(tf.ones(*sent), 1, label)
            ops.receive([1], tf.float32, 1, "what never comes")
        else:
            ops.receive(*wanted, 0, label)
    w.recover()
    return str(e.value)


@pytest.mark.parametrize("world", WORLDS[:2], ids=str)
@pytest.mark.parametrize(
    ("sent", "wanted", "words"),
    [
        (([5], tf.float32), ([6], tf.float32), ["of 5 float32", "of 6 float32"]),
        (([5], tf.uint8), ([5], tf.bool), []),  # as many bytes
    ],
    ids=["size", "dtype"],
)
def test_a_tensor_of_another_kind_is_an_error_on_both(ranks, sent, wanted, words, world):
    label = "activation of dense"
    for text in ranks.run(2, of_another_kind, sent, wanted, label, world=world):
        assert all(word in text for word in [label, *words]), text


def gather_uneven(dtype):
    """As many rows as the rank's number."""
    w = comm.world()

    @tf.function
    def gathered(tensor):
        with ops.channels():
            return ops.allgather(tensor)

    found = gathered(content((w.rank, 3), dtype, w.rank))
    parts = [content((rank, 3), dtype, rank) for rank in range(w.size)]
    np.testing.assert_array_equal(found, tf.concat(parts, 0))


@pytest.mark.parametrize("dtype", ops.MOVED_DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_is_sent_and_gathered(ranks, dtype):
    ranks.run(2, send_around, (10, 3), dtype, 2)
    ranks.run(3, gather_uneven, dtype)
