"""Which ranks of a pipeline read data: those that take the model's inputs, or labels.

The others would only throw it away. The rank of the first stage tells them, in each step, how many
samples there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.pipeline.layout import Place
from tnt_notebook.plan.partition import Partition
from tnt_notebook.plan.schedule import Schedule


@dataclass(frozen=True)
class Readers:
    """By their ranks in the schedule.

    Attributes:
        first: the one that tells the others.
        others: those that read nothing.
    """

    first: int
    others: tuple[int, ...]


def readers_of(cut: Partition, schedule: Schedule) -> Readers:
    """The first stage and every other that takes an input of the model, and the last one."""
    taking = {number for number, stage in enumerate(cut.stages) if stage.inputs}
    reading = {schedule.rank_of[stage] for stage in taking | {0, schedule.stages - 1}}
    others = [rank for rank in range(schedule.ranks) if rank not in reading]
    return Readers(schedule.rank_of[0], tuple(others))


def share_of_pipeline(readers: Readers, place: Place, share: Share | None = None) -> Share:
    """The share of a rank's pipeline, on all its ranks; those that read have it. In a graph."""
    label = "how many samples there are"
    if share is None:
        with ops.channels(channels.READERS):
            numbers = ops.receive([3], tf.int64, place.ranks[readers.first], label, place.over)
        return Share(*tf.unstack(tf.ensure_shape(numbers, [3])))
    if place.rank != readers.first:
        return share
    numbers = tf.stack([tf.cast(number, tf.int64) for number in share])
    sent = []
    for rank in readers.others:
        with ops.channels(channels.READERS):
            sent.append(ops.send(numbers, place.ranks[rank], label, place.over))
    with tf.control_dependencies(sent):
        return Share(*map(tf.identity, share))
