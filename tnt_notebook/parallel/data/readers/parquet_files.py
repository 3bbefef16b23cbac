"""Parquet files, by pyarrow."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.readers.damage import Damage, cannot_read, reason, skip
from tnt_notebook.parallel.data.readers.handles import Handles
from tnt_notebook.parallel.data.readers.optional import library
from tnt_notebook.parallel.data.readers.order import STREAMS, Blocks
from tnt_notebook.parallel.data.readers.paths import Paths, files_of
from tnt_notebook.parallel.data.readers.samples import Damaged, Source, dataset_of

_AT_ONCE = 256
#: Bytes of row groups, as arrays, that stay in memory for each dataset.
_KEPT_BYTES = 256 << 20


def parquet(
    files: Paths,
    columns: Sequence[str] | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    damaged: Damaged = "raise",
    batch: int | None = None,
    ragged: Sequence[str] = (),
) -> tf.data.Dataset:
    """Rows of Parquet files, read by row group.

    Args:
        files: a path, paths, or a pattern such as ``"train/*.parquet"``, sorted by name; all have
            the same columns.
        columns: their names; default: all. Numbers, strings, bytes, and lists of them, or of such
            lists, that are equally long in all rows. Categories are what they stand for, decimals
            float64; times and durations int64 in the unit in which they were written, dates in
            days. Rows with missing values count as damaged.
        shuffle: whether each epoch has all rows of all files in an order of its own. A row group
            can only be read whole, by each rank that wants a row of it; the latest stay in memory,
            up to 256 MB. Where all are more than that, say ``batch``.
        seed: of these orders; default: that of ``keras.utils.set_random_seed``.
        damaged: what is done with a sample that cannot be read: "raise" ends with a DataError that
            names it; "skip" counts and tells it, and puts the next one that can be read in its
            place.
        batch: the size of the global batches that will be made of them, if each rank is to read
            whole row groups of its own. That is another order, the same for every number of ranks:
            a batch has samples of 16 places, and shuffled are the row groups, and the samples
            within each.
        ragged: names of columns that are lists of numbers of any length.

    Returns:
        Dicts by column: scalars, or tensors of shape (length,) of lists, (None,) of ragged ones.

    Raises:
        DataError: pyarrow is not installed, a file is missing or damaged, has other columns, or
            one of a kind of which no tensor can be made.

    Example::

        rows = tnt.data.parquet("train-*.parquet", ["image", "label"], shuffle=True)
        samples = rows.map(lambda r: (tf.io.decode_jpeg(r["image"]), r["label"]), -1)
    """
    arrow = library("pyarrow.parquet", "Parquet files")
    paths = files_of(files)
    footers = []
    for path in paths:
        try:
            with arrow.ParquetFile(path) as opened:
                footers.append((path, opened.metadata, opened.schema_arrow))
        except (OSError, ValueError) as error:
            damage = Damage(path, reason(error))
            if damaged == "raise":
                raise cannot_read(damage) from error
            skip(damage)
    if not footers:
        raise DataError(f"None of {len(paths)} Parquet files can be read.")
    names = _columns(footers, columns)
    groups = [
        Group(path, number, footer.row_group(number).num_rows)
        for path, footer, _ in footers
        for number in range(footer.num_row_groups)
    ]
    ends = np.cumsum([group.rows for group in groups], dtype=np.int64)
    if not len(ends) or not ends[-1]:
        raise DataError(f"There are no rows in {footers[0][0]}, and in no other file either.")
    handles = Handles(arrow.ParquetFile, lambda opened: opened.close())
    spec, inner = _spec(handles, next(group for group in groups if group.rows), names, ragged)
    blocks = None if batch is None else Blocks(ends, batch)
    at_least = 1 if batch is None else STREAMS + 2
    kept = GroupCache(lambda group: _read(handles, group, names, spec), at_least)

    def read(numbers: np.ndarray) -> Sequence[np.ndarray]:
        of_rows = np.searchsorted(ends, numbers, "right")
        found = {int(number): kept.get(groups[number]) for number in np.unique(of_rows)}
        at = numbers - ends[of_rows] + [groups[number].rows for number in of_rows]
        leaves = []
        for name in tf.nest.flatten({name: name for name in spec}):
            picked = [found[int(g)][name][row] for g, row in zip(of_rows, at, strict=True)]
            if any(value is None for value in picked):
                raise DataError(f"column {name} has no value there")
            kind = spec[name]
            if name in inner:
                dtype = inner[name].as_numpy_dtype
                picked = [np.asarray(value, dtype).tobytes() for value in picked]
            leaves.append(_as_array(name, picked, kind))
        return leaves

    def with_ragged(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return row | {name: tf.io.decode_raw(row[name], dtype) for name, dtype in inner.items()}

    def where(number: int) -> str:
        group = groups[int(np.searchsorted(ends, number, "right"))]
        first = next(i for i, one in enumerate(groups) if one.file == group.file)
        return f"row {number - (int(ends[first]) - groups[first].rows)} of {group.file}"

    source = Source(int(ends[-1]), spec, read, where, _AT_ONCE, blocks)
    rows = dataset_of(source, shuffle, seed, damaged)
    return rows.map(with_ragged, tf.data.AUTOTUNE, deterministic=True) if inner else rows


class Group(NamedTuple):
    """A row group: rows of a file that are read together."""

    file: str
    number: int
    rows: int


class GroupCache:
    """Row groups that were read lately, by all threads of this process; so many at least."""

    def __init__(self, read: Callable[[Group], dict[str, np.ndarray]], at_least: int) -> None:
        self._read, self._at_least = read, at_least
        self._lock = threading.Lock()
        self._groups: OrderedDict[Group, dict[str, np.ndarray]] = OrderedDict()
        self._reads: dict[Group, threading.Lock] = {}

    def get(self, group: Group) -> dict[str, np.ndarray]:
        """The columns of a group; who needs it while another thread reads it waits for that."""
        with self._lock:
            reads = self._reads.setdefault(group, threading.Lock())
        with reads:
            with self._lock:
                if group in self._groups:
                    self._groups.move_to_end(group)
                    return self._groups[group]
            columns = self._read(group)
            with self._lock:
                self._groups[group] = columns
                while len(self._groups) > self._at_least and self._bytes() > _KEPT_BYTES:
                    self._reads.pop(self._groups.popitem(last=False)[0], None)
            return columns

    def _bytes(self) -> int:
        return sum(c.nbytes for group in self._groups.values() for c in group.values())


def _columns(footers: Sequence[Any], columns: Sequence[str] | None) -> list[str]:
    """The names of the columns to read, which all files have, of the same types."""
    path, _, schema = footers[0]
    names = list(schema.names if columns is None else columns)
    for other, _, of_other in footers:
        for name in names:
            if name not in of_other.names:
                has = ", ".join(of_other.names)
                raise DataError(f"{other} has no column {name}; it has {has}.")
            if of_other.field(name).type != schema.field(name).type:
                raise DataError(
                    f"Column {name} is {schema.field(name).type} in {path}, and "
                    f"{of_other.field(name).type} in {other}."
                )
    return names


def _spec(
    handles: Handles, group: Group, names: Sequence[str], ragged: Sequence[str]
) -> tuple[dict[str, tf.TensorSpec], dict[str, tf.DType]]:
    """Of a row: lists are as long in all rows as in the first. Ragged ones are strings of their
    bytes; of what kind of numbers these are."""
    with handles.of(group.file) as opened:
        batches = opened.iter_batches(1, [group.number], names, use_threads=False)
        first = next(iter(batches))
    spec = {name: _spec_of_column(name, first.column(name)) for name in names}
    for name in ragged:
        if name not in spec or spec[name].shape.rank != 1 or spec[name].dtype == tf.string:
            raise DataError(f"ragged={list(ragged)}: {name} is not a column of lists of numbers.")
    inner = {name: spec[name].dtype for name in ragged}
    return spec | {name: tf.TensorSpec((), tf.string) for name in ragged}, inner


def _spec_of_column(name: str, column: Any) -> tf.TensorSpec:
    types = library("pyarrow.types", "Parquet files")
    column = _basic(column)
    kind, shape, value = column.type, [], column[0].as_py()
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if value is None:
            raise DataError(f"Column {name} has no value in its first row, so no length is known.")
        shape.append(len(value))
        kind, value = kind.value_type, value[0] if value else None
    strings = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if any(test(kind) for test in strings):
        return tf.TensorSpec(shape, tf.string)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return tf.TensorSpec(shape, tf.as_dtype(kind.to_pandas_dtype()))
    raise DataError(
        f"Column {name} is {column.type}, which cannot become a tensor: name others, columns="
        "[...], or write numbers, strings, bytes, or lists of these."
    )


def _as_array(name: str, values: Sequence[Any], spec: tf.TensorSpec) -> np.ndarray:
    dtype = object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype
    try:
        return np.array(values, dtype).reshape(len(values), *spec.shape)
    except ValueError:
        raise DataError(
            f"column {name} has a list there that is not as long as others, {tuple(spec.shape)}; "
            f'of numbers such lists can be read with ragged=["{name}"]'
        ) from None


def _lacks_some(value: Any) -> bool:
    """Whether a list, or one of those in it, lacks a value."""
    return value is None or (isinstance(value, list) and any(map(_lacks_some, value)))


def _basic(column: Any) -> Any:
    """A column as numbers or strings: categories as what they stand for, decimals as float64, times
    and durations as whole numbers of the unit in which they were written (days of a date)."""
    arrow = library("pyarrow", "Parquet files")
    types = arrow.types
    kind = column.type
    if types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if types.is_decimal(kind):
        return column.cast(arrow.float64())
    if types.is_date32(kind) or types.is_time32(kind):
        return column.cast(arrow.int32()).cast(arrow.int64())
    if types.is_temporal(kind):
        return column.cast(arrow.int64())
    return column


def _read(
    handles: Handles, group: Group, names: Sequence[str], spec: Mapping[str, tf.TensorSpec]
) -> dict[str, np.ndarray]:
    with handles.of(group.file) as opened:
        table = opened.read_row_group(group.number, list(names), use_threads=False)
    return {name: _rows(table.column(name).combine_chunks(), spec[name]) for name in names}


def _rows(column: Any, spec: tf.TensorSpec) -> np.ndarray:
    """One row each; None where a value is missing."""
    column = _basic(column)
    types = library("pyarrow.types", "Parquet files")
    missing = column.is_null().to_numpy(zero_copy_only=False)
    is_list = types.is_nested(column.type)
    if is_list and (types.is_nested(column.type.value_type) or column.flatten().null_count):
        values = column.to_pylist()
        missing = np.array([_lacks_some(value) for value in values])
    else:
        if column.null_count and not is_list and spec.dtype != tf.string:
            # Else whole numbers would go through float64.
            zero = library("pyarrow", "Parquet files").scalar(0).cast(column.type)
            column = column.fill_null(zero)
        values = column.to_numpy(zero_copy_only=False)
    if missing.any() or is_list or spec.dtype == tf.string:
        rows = np.empty(len(values), object)
        for i, value in enumerate(values):
            rows[i] = None if missing[i] else value
        return rows
    return values
