"""Measures a dataset of the cells as ``fit`` would read it: each rank its own part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm.world import World
from tnt_notebook.errors import DataError
from tnt_notebook.keras.dataset_copy import copy_of
from tnt_notebook.parallel.consistency.agreement import everyones
from tnt_notebook.parallel.data import Replica, samples_of, sharded
from tnt_notebook.parallel.loading.measure import cores_of, delivered, once
from tnt_notebook.parallel.loading.pipeline_parts import Part, calls_of, half_written, parts_of
from tnt_notebook.parallel.loading.py_dataset import batches_of
from tnt_notebook.plan.loading import own_row

#: What a name stands for that no cell has defined.
ABSENT = object()

#: Samples are taken in groups that take about as long.
_GROUP_S, _LARGEST_GROUP = 0.01, 64

_WHOLE = 0.5  # of the time; the rest is for the parts


def measure_own(
    over: World,
    name: str,
    value: Any,
    seconds: float,
    in_parts: bool,
    replicas: int,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Measures what a dataset delivers, on all ranks at the same time. Collective. The order in
    which it will be read stays what it is; functions of Python in it are called.

    Args:
        name, value: of the dataset, a ``tf.data.Dataset`` of batches or a ``PyDataset``.
        seconds: for all.
        in_parts: measures as well where the time goes.
        replicas: that share each batch; ranks beyond them read what another one reads.

    Returns:
        What :func:`tnt_notebook.plan.loading.own_row` gives, the same on all ranks.

    Raises:
        DataError: what it is cannot be measured; on all ranks, before anything is.
    """
    _agree(over, _refusal(name, value))
    over_data = Replica(over.rank % replicas, replicas)
    elements, cuts, why = None, [], ""
    try:
        read = sharded(over_data, value)
        if isinstance(value, tf.data.Dataset):
            # One to it: a small dataset would be begun anew more often than it is read.
            elements = once(copy_of(read.dataset).repeat())
            cuts = parts_of(value) if in_parts else []
        else:
            elements = batches_of(value, over_data)
    except (DataError, ValueError, TypeError, tf.errors.OpError) as error:
        why = f"{name!r} cannot be read: {error}"
    _agree(over, why)
    assert elements is not None
    cuts = cuts if len(cuts) > 1 else []
    report(f"measuring {name}")
    over.barrier()
    own: dict[str, float] = {}
    try:
        own = delivered(elements, seconds * (_WHOLE if cuts else 1.0), _local)
    except (ValueError, tf.errors.OpError) as error:
        why = f"{name!r} cannot be read: {error}"
    finally:
        elements.close()
    _agree(over, why)
    of_ranks = everyones(over, own)
    parts: list[dict[str, Any]] = []
    for cut in cuts:
        report(f"measuring {name}, up to where it {cut.name}s")
        over.barrier()
        each = _measured_part(cut, seconds * (1 - _WHOLE) / len(cuts), own)
        took = np.median(everyones(over, each["seconds"] / each["samples"]))
        parts.append({"part": cut.name, "until_s": float(took)})
    calls = calls_of(value) if isinstance(value, tf.data.Dataset) else None
    kind = "tf.data" if isinstance(value, tf.data.Dataset) else "PyDataset"
    return own_row(name, kind, str(read.reading), of_ranks, parts, cores_of(over), calls, replicas)


def _measured_part(part: Part, seconds: float, whole: dict[str, float]) -> dict[str, float]:
    group = round(_GROUP_S * whole["samples"] / whole["seconds"])
    group = max(1, min(_LARGEST_GROUP, group))

    def count(element: Any) -> int:
        return int(samples_of(element)) if part.of_batches else group

    return delivered(once(part.without_end(group)), seconds, count)


def _agree(over: World, why: str) -> None:
    """Raises on all ranks where one has a reason."""
    reasons = everyones(over, why)
    for rank, reason in enumerate(reasons):
        if reason:
            where = "" if all(one == reason for one in reasons) else f"On rank {rank}: "
            raise DataError(f"{where}{reason}")


def _refusal(name: str, value: Any) -> str:
    """Why it is not measured; empty: it is."""
    if value is ABSENT:
        return (
            f"{name!r} is not defined in the cells of the ranks. Define the dataset there first: "
            "in a cell of %%tnt, or of %%tnt_fit."
        )
    if not isinstance(value, tf.data.Dataset | keras.utils.PyDataset):
        return (
            f"{name!r} is a {type(value).__name__}: what is measured is a tf.data.Dataset of "
            "batches, or a keras.utils.PyDataset."
        )
    if isinstance(value, tf.data.Dataset) and (file := half_written(value)):
        return (
            f"{name!r} caches in {file}, and measuring would leave that half written: measure what "
            "comes before .cache(), or train an epoch first and read it then."
        )
    return ""


def _local(element: Any) -> int:
    """Samples of a rank's slice; a borrowed one does not count."""
    return int(element[1].local)
