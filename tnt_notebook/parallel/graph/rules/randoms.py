"""Random numbers. TensorFlow's stateless generators are counters: number n of a draw is the same,
however many others are drawn (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
So a rank draws just the numbers of its samples, which are those that one process draws."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tnt_notebook.parallel.graph.counts import Count
from tnt_notebook.parallel.graph.layouts import SAME, SIZE, Layout, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule

#: Philox, and what chooses it on CPUs and GPUs.
_PHILOX = (1, 3)

#: How many times the counter goes on for a group of numbers: a number of a truncated distribution
#: has room for 256 tries.
_STEPS = {
    "StatelessRandomUniformV2": 1,
    "StatelessRandomNormalV2": 1,
    "StatelessTruncatedNormalV2": 64,
    "StatelessRandomUniformFullIntV2": 1,
    "StatelessRandomUniformIntV2": 1,
}


@rule(*_STEPS)
def drawn(node: Node) -> Decision:
    """Of numbers for all samples those of this rank; where samples are not the first dimension, all
    of them are drawn, and cut."""
    shape, algorithm = node.counts(0), node.static(3)
    if node.has[0] != SIZE or shape is None or algorithm is None or algorithm[0] not in _PHILOX:
        return node.whole()
    first, rest = shape[0], shape[1:]
    if first is None or first.bare != Count(rows=1) or any(s is None or s.rows for s in rest):
        return node.whole()
    dtype = node.outputs[0].dtype
    group = 2 if dtype.size == 8 else 4
    steps = _STEPS[node.type] * (group if node.type == "StatelessTruncatedNormalV2" else 1)
    draw = getattr(tf.raw_ops, node.type)
    names = {"shape": 0, "key": 1, "counter": 2, "alg": 3}
    if node.type == "StatelessRandomUniformIntV2":
        names |= {"minval": 4, "maxval": 5}
    typed = {} if node.type == "StatelessRandomUniformIntV2" else {"dtype": dtype}

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        given = {name: inputs[i] for name, i in names.items()}
        local = tf.cast(given["shape"], tf.int64)
        each = tf.reduce_prod(local[1:])
        begin = emission.here.first * each
        skipped = begin // group
        given["counter"] = _advanced(given["counter"], skipped * steps)
        # A group may belong to two ranks.
        given["shape"] = [begin - skipped * group + emission.here.computed * each]
        numbers = draw(**given, **typed)[begin - skipped * group :]
        return [tf.reshape(numbers, local)]

    wants: list[Layout] = [SIZE, *[SAME] * (len(node.inputs) - 1)]
    return Decision(wants, [Rows(0)], emit)


def _advanced(counter: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    """A counter of 128 bits, the lower half first."""
    low = counter[0] + tf.cast(by, tf.uint64)
    return tf.stack([low, counter[1] + tf.cast(low < counter[0], tf.uint64)])


@rule("RandomUniform", "RandomStandardNormal", "RandomUniformInt", "TruncatedNormal",
      "RandomShuffle")  # fmt: skip
def drawn_in_turn(node: Node) -> Decision:
    """Each draw goes on from the one before, so all ranks draw all numbers."""
    return node.whole()
