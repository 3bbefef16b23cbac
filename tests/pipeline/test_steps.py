"""A step of a pipeline on real ranks computes what one process computes."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.pipeline.models import MODELS, SAMPLES, batch_for
from tests.support.cases import latin
from tnt_notebook import comm
from tnt_notebook.parallel.pipeline.graph import wiring_of
from tnt_notebook.parallel.pipeline.layout import Place, Plan
from tnt_notebook.parallel.pipeline.runtime import MicroBatch, PipelineStep
from tnt_notebook.parallel.pipeline.stage import StageFunctions, stage_models
from tnt_notebook.parallel.pipeline.survey import surveyed
from tnt_notebook.plan import families
from tnt_notebook.plan.partition import partition


def loss_of(outputs, labels):
    """Of one value per sample, so that micro-batches of other sizes weigh as they should."""
    flat = keras.tree.flatten(outputs)
    return [tf.add_n([tf.reduce_mean(tf.sin(3.0 * y) * tf.sign(y + 0.1)) for y in flat])]


def bounds(samples, micro_batches):
    return [(k * samples // micro_batches, (k + 1) * samples // micro_batches)
            for k in range(micro_batches)]  # fmt: skip


def one_process(model, inputs, micro_batches):
    """Gradients, loss and state, micro-batch after micro-batch."""
    total, loss_total = None, 0.0
    for begin, end in bounds(SAMPLES, micro_batches):
        weight = (end - begin) / SAMPLES
        with tf.GradientTape() as tape:
            sliced = [x[begin:end] for x in inputs]
            outputs = model(sliced if len(sliced) > 1 else sliced[0], training=True)
            loss = tf.add_n(loss_of(outputs, []) + list(model.losses)) * weight
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        total = (
            gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
        )
        loss_total += float(loss)
    return [g.numpy() for g in total], loss_total


def step(name, schedule_name, micro_batches, stages_per_rank=None, recompute=False):
    """A step of this rank: its gradients by place in the model, its loss, and the model's state;
    and those of one process."""
    w = comm.world()
    keras.utils.set_random_seed(3)
    model = MODELS[name]()
    inputs = batch_for(model)
    graph = surveyed(model)
    schedule = families.make(schedule_name, w.size, micro_batches, stages_per_rank)
    n, p = len(graph.calls), schedule.stages
    cut = partition(wiring_of(graph), [s * n // p for s in range(1, p)])
    models = stage_models(model, graph, cut)
    kinds = "FIW" if schedule.splits_backward() else "FB"
    stages = {
        s: StageFunctions(
            models[s],
            [tf.TensorSpec((), tf.int64)],
            loss_of,
            kinds,
            recompute=recompute,
            training=True,
        )
        for s in schedule.stages_of(w.rank)
    }
    place = Place(w, tuple(range(w.size)), w.rank)

    @tf.function(autograph=False)
    def run(*tensors):
        micro = [
            MicroBatch(
                end - begin,
                {v: x[begin:end] for v, x in zip(graph.inputs, tensors, strict=True)},
                [tf.constant(end - begin, tf.int64)],
                (end - begin) / SAMPLES,
            )
            for begin, end in bounds(SAMPLES, micro_batches)
        ]
        return PipelineStep(Plan(cut, schedule), place, stages, micro).train()

    before = model.get_weights()
    gradients, loss = run(*map(tf.constant, inputs))
    numbers = {id(v): i for i, v in enumerate(model.trainable_variables)}
    found = {numbers[key]: tf.convert_to_tensor(g).numpy() for key, g in gradients.items()}
    state = {
        i: v.numpy()
        for i, v in enumerate(model.non_trainable_variables)
        if any(v is own for s in stages.values() for layer in s.model.layers
               for own in layer.non_trainable_variables)
    }  # fmt: skip
    model.set_weights(before)
    expected = one_process(model, inputs, micro_batches)
    states = [v.numpy() for v in model.non_trainable_variables]
    return found, float(loss), state, (*expected, states)


def check(outcomes):
    gradients, loss, states = outcomes[0][-1]
    summed, total = {}, 0.0
    for found, of_rank, state, _ in outcomes:
        total += of_rank
        for i, gradient in found.items():
            summed[i] = summed[i] + gradient if i in summed else gradient
        for i, value in state.items():
            np.testing.assert_allclose(value, states[i], 1e-5, 1e-6)
    assert sorted(summed) == list(range(len(gradients)))
    for i, gradient in enumerate(gradients):
        np.testing.assert_allclose(summed[i], gradient, 1e-4, 1e-6, err_msg=str(i))
    assert total == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(("name", "n"), latin(MODELS, (4, 2, 1, 3)))
def test_models(ranks, name, n):
    check(ranks.run(n, step, name, "1f1b", 4))


@pytest.mark.parametrize(
    ("schedule", "n", "micro_batches"), latin(families.FAMILIES, (3, 2), (8, 1, 3), times=2)
)
def test_schedules(ranks, schedule, n, micro_batches):
    check(ranks.run(2 if schedule == "zb-v" else n, step, "mlp", schedule, micro_batches))


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_recomputed_activations(ranks, schedule):
    check(ranks.run(2, step, "residual", schedule, 3, None, True))
