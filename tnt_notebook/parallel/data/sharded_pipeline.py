"""A ``tf.data`` pipeline of global batches, as one that makes this rank's part of each batch.

The samples of a batch are told apart where all ranks still have all of them, see `shard_point`;
what is another rank's is dropped there::

    all ranks    0 1 2 3 4 5 6 7 | 8 9                       windows of the global batch
    rank 1       . . . . 4 5 6 7 | . 9                       [begin, end) of each, see `share_of`
                         |             map, prefetch, cache
                         (4 5 6 7), Share(4, 4, 8) | (9), Share(1, 1, 2)

The results are those of one process, bit for bit, where it has only one. Where samples may be
computed in any order (``deterministic=False``), they are in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tnt_notebook.keras.datasets import (
    file_of,
    inputs_of,
    name_of,
    number_of,
    weighs_classes,
    written_function_of,
)  # fmt: skip
from tnt_notebook.parallel.data.blocks import Blocks, cut_blocks
from tnt_notebook.parallel.data.kinds import Keeps, is_steady, kind_of, obstacle
from tnt_notebook.parallel.data.reading import Reading
from tnt_notebook.parallel.data.row_wise import is_row_wise
from tnt_notebook.parallel.data.shard import (
    MODULUS,
    Replica,
    Share,
    fingerprint_of,
    shard,
    share_of,
)  # fmt: skip
from tnt_notebook.parallel.data.shard_point import (
    Cache,
    Chunks,
    Map,
    Prefetch,
    ShardPoint,
    counted,
    maps_within,
    shard_point,
    work_before,
)  # fmt: skip

Parts = tuple[tf.data.Dataset, Reading]


def own_part(
    batches: tf.data.Dataset, over: Replica, skipped: int = 0, blocks: Blocks = ()
) -> Parts:
    """A dataset of ``(slice of this rank, Share)`` from a dataset of global batches, and how much
    of the work each rank does.

    Args:
        skipped: batches at the beginning that are left out; where that can be, nothing is read or
            mapped for them.
        blocks: what this rank takes of each sample. Of files nothing else is read, unless something
            is done with samples after it.
    """
    if skipped:
        if not _can_skip(batches):
            parts, reading = own_part(batches, over, blocks=blocks)
            return parts.skip(skipped), reading
        parts, reading = _in_blocks(batches, over, skipped, blocks)
        return _finished(parts, batches, batches.skip(skipped).cardinality()), reading
    # Kept with the dataset, so that its caches are filled once, as its own would be.
    made: dict[Any, Parts] = vars(batches).setdefault("parts_of_ranks", {})
    key = over, blocks
    if key not in made:
        parts, reading = _in_blocks(batches, over, 0, blocks)
        made[key] = _finished(parts, batches, batches.cardinality()), reading
    return made[key]


def _in_blocks(batches: tf.data.Dataset, over: Replica, skipped: int, blocks: Blocks) -> Parts:
    if not blocks or _reads_blocks(batches):
        return _part(batches, over, skipped, blocks)
    parts, reading = _part(batches, over, skipped)
    return parts.map(lambda batch, share: (cut_blocks(batch, blocks), share)), reading


def _reads_blocks(batches: tf.data.Dataset) -> bool:
    """Whether nothing is done with samples that were read but to keep them in memory: then blocks
    of them can be read."""
    name, keeps = name_of(batches), kind_of(batches).keeps
    if name == "batch":
        cut = _seen_through(batches)
        if cut is None:
            return False
        first, *others = cut.own
        return (
            isinstance(first, Chunks)
            and first.blocks is not None
            and all(isinstance(s, Prefetch) or s == Cache("") for s in others)
        )
    if name in ("map", "zip") or keeps not in (Keeps.each, Keeps.count):
        return False
    if name == "cache" and file_of(batches):
        return False
    return all(map(_reads_blocks, inputs_of(batches)))


def _finished(
    parts: tf.data.Dataset, batches: tf.data.Dataset, count: tf.Tensor
) -> tf.data.Dataset:
    if count != tf.data.UNKNOWN_CARDINALITY:
        parts = parts.apply(tf.data.experimental.assert_cardinality(count))
    return parts.with_options(batches.options()).prefetch(tf.data.AUTOTUNE)


def _can_skip(batches: tf.data.Dataset) -> bool:
    """Whether batches can be left out where they are told apart, before anything is done: not where
    something keeps what was done, or counts it."""
    name = name_of(batches)
    if name == "batch":
        (source,) = inputs_of(batches)
        return not any(isinstance(stage, Cache) for stage in shard_point(source).own)
    if name not in ("prefetch", "options", "assert_cardinality", "map"):
        return False
    return all(map(_can_skip, inputs_of(batches)))


def _part(batches: tf.data.Dataset, over: Replica, skipped: int = 0, blocks: Blocks = ()) -> Parts:
    name, keeps = name_of(batches), kind_of(batches).keeps
    if name == "batch":
        return _of_batch(batches, over, skipped, blocks)
    if name == "zip" or keeps not in (Keeps.each, Keeps.count):
        return _of_whole(batches, over, skipped)
    (source,) = inputs_of(batches)
    if name == "map":
        function = written_function_of(batches)
        if obstacle(batches) or not (is_row_wise(function) or weighs_classes(function)):
            return _of_whole(batches, over, skipped)
    if name == "cache" and not is_steady(source):
        return _of_whole(batches, over)
    parts, reading = _part(source, over, skipped, blocks)
    if name == "map":
        calls = number_of(batches, "num_parallel_calls")
        return _on_rows(parts, function, calls), reading
    if name == "cache":
        return parts.cache(_file(file_of(batches), over)), reading
    if keeps is Keeps.count:
        chosen = parts if name == "assert_cardinality" else counted(name, batches, parts)
        return _of_whole(batches, over) if chosen is None else (chosen, reading)
    size = number_of(batches, "buffer_size") if name == "prefetch" else None
    return (parts if size is None else parts.prefetch(size)), reading


def _of_whole(batches: tf.data.Dataset, over: Replica, skipped: int = 0) -> Parts:
    """Every rank makes the whole batch, and keeps its slice."""
    name, before = name_of(batches), work_before(batches)
    given = batches.skip(skipped) if skipped else batches
    parts = shard(given, over, is_zipped=name_of(_before_prefetch(batches)) == "zip")
    if name == "map":
        return parts, Reading(obstacle(batches) or "map after batch")
    if name == "from_generator":
        return parts, Reading(name)
    if maps_within(batches):
        return parts, Reading(f"map inside {name}")
    return parts, Reading(before)


def _before_prefetch(batches: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset whose elements these are, as they are."""
    while name_of(batches) in ("prefetch", "options", "repeat", "take", "assert_cardinality"):
        (batches,) = inputs_of(batches)
    return batches


def _seen_through(batches: tf.data.Dataset) -> ShardPoint | None:
    """What makes the samples of batches, if a rank can make some of them alone."""
    (source,) = inputs_of(batches)
    cut = shard_point(source)
    # Sparse samples become a batch that is as wide as its widest one.
    dense = _are(source, tf.TensorSpec)
    values = _are(cut.all, tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)
    known = number_of(batches, "batch_size") is not None
    return cut if cut.own and dense and values and known else None


def _of_batch(batches: tf.data.Dataset, over: Replica, skipped: int, blocks: Blocks) -> Parts:
    size, cut = number_of(batches, "batch_size"), _seen_through(batches)
    if cut is None or size is None:
        return _of_whole(batches, over, skipped)
    reading = Reading(_work_of_all(cut))
    drop = bool(number_of(batches, "drop_remainder"))
    windows = cut.all.window(size, drop_remainder=drop)
    samples = _own_samples(windows.skip(skipped) if skipped else windows, over)
    for stage in cut.own:
        match stage:
            case Map():
                samples = _on_each(samples, stage)
            case Chunks():
                samples = _in_chunks(samples, stage, blocks)
            case Prefetch():
                samples = samples.prefetch(stage.size)
            case Cache():
                samples = samples.cache(_file(stage.file, over, size))
    uneven = not drop and _may_have_more(cut.all.cardinality(), size, over)
    return _batched(samples, over, None if uneven else _length(size, over)), reading


def _are(dataset: tf.data.Dataset, *kinds: type) -> bool:
    """Whether all that an element consists of is of these kinds, and not datasets, for instance."""
    return all(isinstance(spec, kinds) for spec in tf.nest.flatten(dataset.element_spec))


def _work_of_all(cut: ShardPoint) -> str:
    name = name_of(cut.all)
    if name == "from_generator":
        return name
    if name == "map":
        return obstacle(cut.all)
    return f"map inside {name}" if maps_within(cut.all) else work_before(cut.all)


def _own_samples(windows: tf.data.Dataset, over: Replica) -> tf.data.Dataset:
    """Of each window this rank's samples, each with the mark of the batch: one number, since it
    goes with every sample."""
    is_tuple = type(windows.element_spec) is tuple

    @tf.autograph.experimental.do_not_convert
    def of_window(*parts: Any) -> tf.data.Dataset:
        window = parts if is_tuple else parts[0]
        if not isinstance(window, tf.data.Dataset):
            window = tf.data.Dataset.zip(window)
        total = window.cardinality()
        begin, end = share_of(total, over)
        ends = [window.skip(at).take(1).get_single_element() for at in (0, total - 1)]
        mark = tf.data.Dataset.from_tensors(total * MODULUS + fingerprint_of(total, ends))
        # A rank without data borrows a sample.
        own = window.skip(begin).take(tf.maximum(end - begin, 1))
        return tf.data.Dataset.zip((own, mark.repeat()))

    return windows.flat_map(of_window)


def _on_each(parts: tf.data.Dataset, stage: Map) -> tf.data.Dataset:
    """Maps what comes with a Share."""

    @tf.autograph.experimental.do_not_convert
    def mapped(value: Any, share: Any) -> Any:
        return stage.function(value), share

    ordered = None if stage.calls is None else True
    return parts.map(mapped, num_parallel_calls=stage.calls, deterministic=ordered)


def _in_chunks(parts: tf.data.Dataset, stage: Chunks, blocks: Blocks) -> tf.data.Dataset:
    """Makes several samples at a time, of one batch or of several."""
    chunks, function = parts.batch(stage.size), stage.function
    if blocks:
        assert stage.blocks is not None  # or else blocks are cut later
        function = stage.blocks(blocks)
    return _on_each(chunks, Map(function, stage.calls)).unbatch()


def _on_rows(
    parts: tf.data.Dataset, function: Callable[..., Any], calls: int | None
) -> tf.data.Dataset:
    """Maps rows of batches: traced anew, since what was traced may take whole batches only."""

    def mapped(rows: Any, share: Any) -> Any:
        return (function(*rows) if type(rows) is tuple else function(rows)), share

    ordered = None if calls is None else True
    return parts.map(mapped, num_parallel_calls=calls, deterministic=ordered)


def _batched(samples: tf.data.Dataset, over: Replica, length: int | None) -> tf.data.Dataset:
    """The samples of a batch have come one after the other: so many of each batch but the last,
    which may have less; None: as many as their mark says."""

    def share_of_mark(mark: tf.Tensor) -> Share:
        return Share.of(mark // MODULUS, over, mark % MODULUS)

    if length is not None:
        batches = samples.batch(length)
    else:
        batches = samples.group_by_window(
            lambda sample, mark: tf.maximum(share_of_mark(mark).local, 1),
            lambda key, group: group.batch(key),
            window_size_func=lambda key: key,
        )
    return batches.map(lambda batch, marks: (batch, share_of_mark(marks[0])))


def _length(total: int, over: Replica) -> int:
    """Samples that a rank computes with, of a batch of so many."""
    begin, end = share_of(total, over)
    return max(1, end - begin)


def _may_have_more(count: tf.Tensor, size: int, over: Replica) -> bool:
    """Whether this rank might have more samples of the last batch than of the others: on 5 ranks
    the third has 1 of 8, and 2 of 7."""
    if count == tf.data.INFINITE_CARDINALITY:
        return False
    known = count != tf.data.UNKNOWN_CARDINALITY
    lasts = [int(count) % size] if known else range(size)
    return any(_length(last, over) > _length(size, over) for last in lasts)


def _file(file: str, over: Replica, size: int | None = None) -> str:
    """Where a cache keeps what is this rank's part, of batches of this size."""
    of_batches = "" if size is None else f"-of-batches-of-{size}"
    shares = f"-by-{'-'.join(map(str, over.shares))}" if over.shares else ""
    return file and f"{file}-rank-{over.rank}-of-{over.size}{shares}{of_batches}"
