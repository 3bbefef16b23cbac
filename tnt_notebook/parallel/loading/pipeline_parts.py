"""Where the time of a person's own ``tf.data`` pipeline goes: what reads, what maps, what batches.

A pipeline is a chain of ops, of which each but the first has one input. It is cut where another
kind of work begins, and what lies before each cut is measured by itself::

    list_files -> interleave | map -> map -> prefetch | batch -> prefetch
                 read       |         map            |       batch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from tnt_notebook.keras.dataset_copy import copy_of
from tnt_notebook.keras.datasets import file_of, inputs_of, name_of, number_of

_BATCHES = {"batch", "padded_batch", "ragged_batch"}
#: They change how many elements there are, or what an element is: what comes before cannot be
#: counted in samples.
_RECOUNTS = {
    "unbatch", "interleave", "flat_map", "filter", "window", "rebatch", "group_by_window", "zip",
    "concatenate", "sample_from_datasets", "choose_from_datasets", "from_generator",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """The pipeline up to an op.

    Attributes:
        name: what its last ops do: read, map, batch.
        until: what has come out by then.
        of_batches: whether its elements are batches, and not samples.
    """

    name: str
    until: tf.data.Dataset
    of_batches: bool

    def without_end(self, group: int) -> tf.data.Dataset:
        """The part, again and again; of samples the last of each group of so many only: what is
        dropped has been made as well, and is not handed to Python, which would take longer."""
        again = copy_of(self.until).repeat()
        return again if self.of_batches else again.shard(group, group - 1)


def parts_of(dataset: tf.data.Dataset) -> list[Part]:
    """The parts of a pipeline of batches, from the source to the end. One alone, ``read``: it
    cannot be cut."""
    chain = _chain(dataset)
    begin = max((i for i, each in enumerate(chain) if name_of(each) in _RECOUNTS), default=0)
    later = range(begin, len(chain))
    batched = next((i for i in later if name_of(chain[i]) in _BATCHES), len(chain))
    kinds = [_kind(name_of(each)) for each in chain]
    parts = []
    for i in range(begin, len(chain)):
        before = kinds[begin : i + 1]
        kind = next((one for one in reversed(before) if one), "read")
        following = next((one for one in kinds[i + 1 :] if one), kind)
        ends = i == len(chain) - 1 or (kinds[i + 1] and following != kind)
        if ends:
            parts.append(Part(kind, chain[i], i >= batched or batched == len(chain)))
    return parts


def half_written(dataset: tf.data.Dataset) -> str:
    """The file of a cache of it, which reading a part of the dataset would leave half written;
    empty: there is none."""
    if name_of(dataset) == "cache" and file_of(dataset):
        return file_of(dataset)
    return next(filter(None, map(half_written, inputs_of(dataset))), "")


def calls_of(dataset: tf.data.Dataset) -> int | None:
    """The fewest parallel calls of its maps, 0: as many as seem good; None: it has no map."""
    calls = [
        (number_of(each, "num_parallel_calls") or 1)
        for each in _chain(dataset)
        if name_of(each) == "map"
    ]
    return max(0, min(calls)) if calls else None


def _chain(dataset: tf.data.Dataset) -> Sequence[tf.data.Dataset]:
    """From the first that has one input or none, to the dataset itself."""
    chain = [dataset]
    while len(inputs := inputs_of(chain[0])) == 1:
        chain.insert(0, inputs[0])
    return chain


def _kind(name: str) -> str:
    """What an op does, where that is work; what only hands on belongs to what is before it."""
    return "map" if name == "map" else "batch" if name in _BATCHES else ""
