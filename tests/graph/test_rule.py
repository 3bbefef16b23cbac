"""A rule of one's own."""

from typing import Any

import numpy as np
import tensorflow as tf

import tnt_notebook as tnt
from tests.graph.together import OnAllRanks, uneven
from tnt_notebook.comm import world
from tnt_notebook.parallel.graph.table import RULES


def sizes(with_rule: bool) -> list[list[int]]:
    """How many rows a function in Python gets on each rank; what it makes is that of one process
    with and without a rule."""
    seen = []

    def squared(x: np.ndarray) -> np.ndarray:
        seen.append(len(x))
        return x**2

    def step(x: tf.Tensor) -> Any:
        made = tf.ensure_shape(tf.numpy_function(squared, [x], tf.float64), x.shape)
        return made, tf.reduce_mean(made, 0)

    if with_rule:

        @tnt.graph.rule("PyFunc")
        def of_each_sample(node: tnt.graph.Node) -> tnt.graph.Decision:
            return tnt.graph.Decision(node.has, node.has)

    try:
        on_ranks = OnAllRanks(step, [tf.TensorSpec((None, 2), tf.float64)])
        x = np.random.default_rng(0).normal(size=(7, 2))
        for ours, alone in zip(
            on_ranks.together([x], uneven(3, 7, world().size)), (x**2, (x**2).mean(0)), strict=True
        ):
            np.testing.assert_allclose(ours, alone, 1e-12)
    finally:
        RULES.pop("PyFunc", None)
    return seen


def test_an_op_with_a_rule_is_not_given_all_samples(ranks):
    assert ranks.run(2, sizes, False) == [[7], [7]]
    cuts = uneven(3, 7, 2)
    assert ranks.run(2, sizes, True) == [[cuts[1]], [7 - cuts[1]]]
