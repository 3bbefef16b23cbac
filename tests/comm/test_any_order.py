"""Ops of one graph that are under way at once, started in another order on every rank."""

import random
import time
from functools import partial

import numpy as np
import pytest

from tests.comm.reference import assert_reduced, small_integers
from tests.comm.threads import at_once
from tnt_notebook import comm
from tnt_notebook.comm.channels import GRAPH
from tnt_notebook.telemetry.events import EVENT_KINDS

#: Of each op: what it does, on what, and its tensors.
OPS = [
    ("sum", "world", "float32", [(1,)]),
    ("sum", "pair", "float32", [(30_000,)]),
    ("max", "world", "int32", [(100,), (3, 5)]),
    ("sum", "world", "float32", [(100_000,), (7,), ()]),
    ("gather", "world", "float64", [(5, 2)]),
    ("product", "pair", "float64", [(3,)]),
    ("min", "others", "int64", [(2000,)]),
    ("sum", "others", "float16", [(50,), (0,)]),
    ("gather", "world", "int32", [(20_000,)]),
    ("sum", "world", "float32", [(12,)]),
]


def traced(groups):
    """A function of all inputs, and of how long each op has to wait for its input."""
    import tensorflow as tf

    from tnt_notebook.comm import ops

    def late(x, turns):
        (i,) = tf.while_loop(lambda i: i < turns, lambda i: (i + 1,), (0,))
        return tf.where(i >= 0, x, tf.zeros_like(x))  # nothing that TensorFlow would leave out

    @tf.function(autograph=False)
    def step(inputs, turns):
        outputs = []
        with ops.channels():
            for number, (op, over, _, _) in enumerate(OPS):
                tensors = [late(x, turns[number]) for x in inputs[number]]
                if op == "gather":
                    outputs.append([ops.allgather(tensors[0], over=groups[over])])
                else:
                    outputs.append(ops.allreduce(tensors, 1.0, op, over=groups[over]))
        return outputs

    return step


def in_any_order(seed, steps):
    """Carries out the graph while threads reduce buckets; gives the order in which its ops have
    begun here, of each step."""
    import tensorflow as tf

    w, chance = comm.world(), random.Random(100 * seed + comm.rank())
    groups = {"world": w, "pair": w.split(w.rank // 2), "others": w.split(w.rank == 0)}
    step, orders = traced(groups), []
    buckets = [w.bucket(count) for count in (10, 50_000)]
    with at_once([partial(reduce, bucket, 3 * steps) for bucket in buckets], seed):
        for number in range(steps):
            inputs = [
                [
                    [small_integers(rank + 4 * number, shape, dtype) for shape in shapes]
                    for _, _, dtype, shapes in OPS
                ]
                for rank in range(w.size)
            ]
            turns = tf.constant([chance.choice((0, 0, 10, 100, 300)) for _ in OPS])
            own = tf.nest.map_structure(tf.constant, inputs[w.rank])
            now = time.monotonic_ns()
            outputs = step(own, turns)
            orders.append(begun_since(now))
            check(inputs, outputs, groups, number)
    return orders


def check(inputs, outputs, groups, step):
    for i, (op, over, _, shapes) in enumerate(OPS):
        for k in range(len(shapes)):
            parts = [inputs[rank][i][k] for rank in groups[over].members]
            what = f"op {i}, tensor {k}, step {step}"
            if op == "gather":
                np.testing.assert_array_equal(outputs[i][k], np.concatenate(parts), what)
            else:
                assert_reduced(outputs[i][k].numpy(), parts, op, what)


def reduce(bucket, times):
    w = comm.world()
    for i in range(times):
        bucket.array[:] = w.rank + i
        assert (bucket.allreduce() == sum(range(w.size)) + i * w.size).all()


def begun_since(moment_ns):
    """The channels of ops that have begun here since then, in order."""
    events = comm.world().trace()
    ready = events["kind"] == EVENT_KINDS.index("ready")
    channels = events["channel"][ready & (events["begin_ns"] >= moment_ns)].tolist()
    # An allgather begins twice on its channel.
    return [c for c in dict.fromkeys(channels) if 0 <= c - GRAPH.first < len(OPS)]


@pytest.mark.parametrize(
    ("n", "world"),
    [
        pytest.param(4, {"lanes": 1}, marks=pytest.mark.thorough),
        (4, {"lanes": 2}),
        (3, {"transport": "mpi", "lanes": 1}),
        (4, {"transport": "mpi", "lanes": 2}),
        (4, {"nodes": (0, 0, 1, 1), "lanes": 2}),
    ],
    ids=str,
)
def test_ranks_may_begin_the_ops_of_a_graph_in_any_order(ranks, n, world):
    steps = 25
    per_rank = ranks.run(n, in_any_order, n, steps, world=world)
    channels = set(per_rank[0][0])
    assert len(channels) == len(OPS)
    assert all(set(order) == channels for orders in per_rank for order in orders)
    # Or the test would show nothing.
    different = [len(set(map(tuple, orders))) > 1 for orders in zip(*per_rank, strict=True)]
    assert sum(different) > steps / 2
