"""Which ranks of a pipeline read data: those that take the model's inputs, or labels.

The others would only throw it away. The rank of the first stage tells them, in each step, how many
samples there are.
"""

from __future__ import annotations

import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.pipeline.place import Place, Plan


def ranks_without_data(plan: Plan) -> tuple[int, ...]:
    """By their rank in the schedule, all but those of the first stage and the last one, and of
    every other that takes an input of the model."""
    cut, schedule = plan.cut, plan.schedule
    taking = {number for number, stage in enumerate(cut.stages) if stage.inputs}
    reading = {schedule.rank_of[stage] for stage in taking | {0, schedule.stages - 1}}
    return tuple(rank for rank in range(schedule.ranks) if rank not in reading)


def share_of_pipeline(plan: Plan, place: Place, share: Share | None = None) -> Share:
    """The share of a rank's pipeline, on all its ranks; those that read have it. In a graph."""
    label = "how many samples there are"
    first = plan.schedule.rank_of[0]
    if share is None:
        with ops.channels(channels.READERS):
            numbers = ops.receive(
                [len(Share._fields)], tf.int64, place.ranks[first], label, place.over
            )
        return Share(*tf.unstack(tf.ensure_shape(numbers, [len(Share._fields)])))
    if place.rank != first:
        return share
    numbers = tf.stack([tf.cast(number, tf.int64) for number in share])
    sent = []
    for rank in ranks_without_data(plan):
        with ops.channels(channels.READERS):
            sent.append(ops.send(numbers, place.ranks[rank], label, place.over))
    with tf.control_dependencies(sent):
        return Share(*map(tf.identity, share))
