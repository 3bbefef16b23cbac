"""Where in a ``tf.data`` pipeline a rank may begin to work on its own samples alone.

Found by walking from a batch towards its source, through what works on each sample by itself. What
is there is taken as it is: the dataset that a shuffle has made knows how often it was shuffled, and
one made anew would not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.datasets import (
    file_of,
    function_of,
    inputs_of,
    name_of,
    number_of,
    ops_within,
    written_function_of,
    zipped,
)  # fmt: skip
from tnt_notebook.parallel.data.blocks import Blocks, about_reader
from tnt_notebook.parallel.data.kinds import Keeps, is_steady, kind_of, obstacle
from tnt_notebook.parallel.data.row_wise import is_row_wise


@dataclass(frozen=True)
class Map:
    """A function from one sample to one; how many are computed at a time, None: one."""

    function: Callable[[Any], Any]
    calls: int | None


@dataclass(frozen=True)
class Prefetch:
    """So many samples are kept ready; -1: as many as seem good."""

    size: int


@dataclass(frozen=True)
class Cache:
    """Samples are kept: in a file, or, without a name, in memory."""

    file: str


@dataclass(frozen=True)
class Chunks:
    """A function from rows to as many rows, each computed of the same row: a map between ``batch``
    and ``unbatch``.

    Attributes:
        function: of the rows of several samples.
        calls: how many are computed at a time, None: one.
        size: samples that it is given.
        blocks: gives the function that makes blocks of the same samples; None: it is not known how.
    """

    function: Callable[[Any], Any]
    calls: int | None
    size: int
    blocks: Callable[[Blocks], Callable[..., Any]] | None = None

    def of_one(self, sample: Any) -> Any:
        """What it makes of one sample alone."""
        rows = tf.nest.map_structure(lambda leaf: leaf[None], sample)
        return tf.nest.map_structure(lambda leaf: leaf[0], self.function(rows))


Stage = Map | Prefetch | Cache | Chunks


@dataclass(frozen=True)
class ShardPoint:
    """What makes samples.

    Attributes:
        all: what every rank needs all of.
        own: what is done then, with each sample by itself.
    """

    all: tf.data.Dataset
    own: tuple[Stage, ...] = ()


def shard_point(samples: tf.data.Dataset) -> ShardPoint:
    """Of a dataset of samples, how much can be done of some of them alone."""
    name, keeps = name_of(samples), kind_of(samples).keeps
    whole = ShardPoint(samples)
    if name == "zip":
        return _zipped(samples)
    if name == "unbatch":
        return _in_chunks(samples)
    if keeps not in (Keeps.each, Keeps.count):
        return whole
    if name == "map":
        return _mapped(samples)
    (source,) = inputs_of(samples)
    before = shard_point(source)
    if not before.own:
        return whole
    if keeps is Keeps.count:
        # A part of a cache is not the same part when it is repeated, and batches are cut elsewhere.
        if any(isinstance(stage, Cache) for stage in before.own):
            return whole
        chosen = counted(name, samples, before.all)
        return whole if chosen is None else ShardPoint(chosen, before.own)
    if name == "cache":
        # One that was filled already, here or by whoever made it, would have another order.
        return with_stage(before, Cache(file_of(samples))) if is_steady(source) else whole
    size = number_of(samples, "buffer_size") if name == "prefetch" else None
    return before if size is None else with_stage(before, Prefetch(size))


def with_stage(before: ShardPoint, stage: Stage) -> ShardPoint:
    return ShardPoint(before.all, (*before.own, stage))


def counted(name: str, chooses: tf.data.Dataset, source: tf.data.Dataset) -> tf.data.Dataset | None:
    """What repeats, takes, skips or counts, with another source; None if it cannot be said how."""
    if name == "assert_cardinality":
        return source.apply(tf.data.experimental.assert_cardinality(chooses.cardinality()))
    count = number_of(chooses, "count")
    return None if count is None else getattr(source, name)(count)


def work_before(dataset: tf.data.Dataset, wanted_by: str = "") -> str:
    """What is done with samples before a dataset has them; empty: nothing worth a word.

    Args:
        wanted_by: the op that has to see them, where the dataset is made by one that only counts.
    """
    if not wanted_by or name_of(dataset) != "assert_cardinality":
        wanted_by = name_of(dataset)
    for source in inputs_of(dataset):
        name = name_of(source)
        if name == "from_generator":
            return name
        if name == "map":
            return obstacle(source) or f"map before {wanted_by}"
        if name == "unbatch" and shard_point(source).own:
            return f"map before {wanted_by}"
        if maps_within(source):
            return f"map inside {name}"
        if found := work_before(source, wanted_by):
            return found
    return ""


def maps_within(dataset: tf.data.Dataset) -> bool:
    """Whether an op makes datasets of its own that map."""
    return bool({"MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2"} & ops_within(dataset))


def _mapped(samples: tf.data.Dataset) -> ShardPoint:
    if obstacle(samples):
        return ShardPoint(samples)
    (source,) = inputs_of(samples)
    calls = number_of(samples, "num_parallel_calls")
    return with_stage(shard_point(source), Map(function_of(samples), calls))


def _in_chunks(samples: tf.data.Dataset) -> ShardPoint:
    """Of samples that were made some at a time: they could as well be made one by one."""
    whole = ShardPoint(samples)
    (mapped,) = inputs_of(samples)
    if name_of(mapped) != "map" or not is_row_wise(written_function_of(mapped)) or obstacle(mapped):
        return whole
    (chunks,) = inputs_of(mapped)
    size = number_of(chunks, "batch_size")
    if name_of(chunks) != "batch" or number_of(chunks, "drop_remainder") or size is None:
        return whole
    (source,) = inputs_of(chunks)
    calls = number_of(mapped, "num_parallel_calls")
    told = about_reader(written_function_of(mapped))
    blocks = None if told is None else told.reading_blocks
    return with_stage(shard_point(source), Chunks(function_of(mapped), calls, size, blocks))


def _zipped(samples: tf.data.Dataset) -> ShardPoint:
    """Samples in parts: each part by itself, all by one function."""
    parts = keras.tree.map_structure(shard_point, zipped(samples))
    stages = [stage for part in keras.tree.flatten(parts) for stage in part.own]
    if not stages or any(isinstance(stage, Cache) for stage in stages):
        return ShardPoint(samples)

    def function(element: Any) -> Any:
        def of_part(part: ShardPoint, value: Any) -> Any:
            for stage in part.own:
                if isinstance(stage, Chunks):
                    value = stage.of_one(value)
                elif isinstance(stage, Map):
                    value = stage.function(value)
            return value

        return keras.tree.map_structure_up_to(parts, of_part, parts, element)

    source = tf.data.Dataset.zip(keras.tree.map_structure(lambda part: part.all, parts))
    calls = {stage.calls for stage in stages if isinstance(stage, Map | Chunks)}
    return ShardPoint(source, (Map(function, -1 if calls != {None} else None),))
