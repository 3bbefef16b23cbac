"""Ops of ``tf.data``: what they do to the order and the number of samples.

This is what decides how early a rank may drop what is another rank's::

    shuffle -> map -> prefetch -> batch -> prefetch
            ^                     |
            |  one for one:       how many make a batch
            |  of its own alone
         all ranks need all until here

An op that is not in this table may do anything.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from tnt_notebook.keras.datasets import (
    OF_PYTHON,
    inputs_of,
    name_of,
    number_of,
    reshuffles,
    state_of_run_within,
    state_within,
)  # fmt: skip


class Keeps(enum.Enum):
    """How an op's elements correspond to those of its input."""

    each = enum.auto()
    """One for one, in the same order."""
    count = enum.auto()
    """Some of them, or again, by their number alone: it may as well come before a map."""
    batches = enum.auto()
    """So many at a time."""
    unknown = enum.auto()
    """Only who has all elements knows: the order of a shuffle, what a filter leaves."""


@dataclass(frozen=True)
class Kind:
    """Of an op.

    Attributes:
        keeps: how its elements correspond to those of its input.
        steady: whether, if its inputs are the same for each iterator, so is what it makes.
    """

    keeps: Keeps = Keeps.unknown
    steady: Callable[[tf.data.Dataset], bool] = lambda dataset: False


def _always(dataset: tf.data.Dataset) -> bool:
    return True


def _without_state(dataset: tf.data.Dataset) -> bool:
    return not state_within(dataset)


def _reads_only(dataset: tf.data.Dataset) -> bool:
    # Readers of files count as stateful ops, so that none is merged with another.
    readers = {"FixedLengthRecordDatasetV2", "TFRecordDataset", "TFRecordDatasetV2"}
    return state_within(dataset) <= readers | {"TensorSliceDataset", "TextLineDataset"}


KINDS = {
    **dict.fromkeys(("prefetch", "options", "cache"), Kind(Keeps.each, _always)),
    "map": Kind(Keeps.each, lambda dataset: not obstacle(dataset)),
    "zip": Kind(Keeps.each, _always),
    **dict.fromkeys(("repeat", "take", "skip", "assert_cardinality"), Kind(Keeps.count, _always)),
    "batch": Kind(Keeps.batches, _always),
    "shuffle": Kind(steady=lambda dataset: not reshuffles(dataset)),
    "filter": Kind(steady=_without_state),
    **dict.fromkeys(("interleave", "flat_map"), Kind(steady=_reads_only)),
    **dict.fromkeys(("concatenate", "shard", "unbatch"), Kind(steady=_always)),
    **dict.fromkeys(("from_tensor_slices", "from_tensors", "range"), Kind(steady=_always)),
    **dict.fromkeys(
        ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"), Kind(steady=_always)
    ),
}


def kind_of(dataset: tf.data.Dataset) -> Kind:
    """What is known of the op that has made a dataset."""
    return KINDS.get(name_of(dataset), Kind())


def is_steady(dataset: tf.data.Dataset) -> bool:
    """Whether all iterators over a dataset give the same elements in the same order."""
    return kind_of(dataset).steady(dataset) and all(map(is_steady, inputs_of(dataset)))


def obstacle(mapped: tf.data.Dataset) -> str:
    """Why a map has to see all samples; empty: it need not."""
    state, calls = state_of_run_within(mapped), number_of(mapped, "num_parallel_calls")
    if not state:
        return ""
    if state <= OF_PYTHON:
        # Which sample is computed when is open if several are at a time.
        return "" if calls not in (None, 1) else "map calls Python, one sample after the other"
    drawn = any("Random" in op for op in state)
    return "map draws seeded random numbers" if drawn else "map has a state"
