"""How a run is set up: what those need to know who conclude anything from its steps."""

from __future__ import annotations

import os
from collections import Counter

from tnt_notebook.comm import World
from tnt_notebook.keras.adapters import (
    DataAdapter,
    is_of_arrays,
    is_of_generator,
    is_of_tf_data,
    is_of_torch,
    py_dataset_of,
)  # fmt: skip
from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.plan.promise import Promise
from tnt_notebook.telemetry.frame import InputKind, Setup


def setup_of(
    over: World,
    stages: int,
    exchange: Exchange,
    adapter: DataAdapter,
    per_execution: int,
    promise: Promise | None = None,
) -> Setup:
    """Of a run. Collective.

    Args:
        stages: of its pipeline; 1 without.
        adapter: Keras's own, of what it reads.
        per_execution: steps that Keras makes in one call.
        promise: of the plan that it follows, where its steps are those that were planned.
    """
    cores = agreement.everyones(over, sorted(os.sched_getaffinity(0)))
    by_host: dict[int, set[int]] = {}
    for node, own in zip(over.node, cores, strict=True):
        by_host.setdefault(node, set()).update(own)
    ranks = Counter(over.node)
    setup = Setup(
        stages=stages,
        hosts=len(by_host),
        ranks_per_core=max(1.0, *(ranks[node] / len(own) for node, own in by_host.items())),
        per_execution=per_execution,
        input=_input_of(adapter),
        exchanged="gradients" if exchange.keeps_ranks_equal else "weights",
    )
    if promise is not None:
        setup["promised_step_s"] = float(f"{promise.step_s:.4g}")
        setup["promised_bytes"] = promise.rank_bytes
    return setup


def _input_of(adapter: DataAdapter) -> InputKind:
    if is_of_arrays(adapter):
        return "arrays"
    if is_of_tf_data(adapter):
        return "tf.data"
    if is_of_torch(adapter):
        return "DataLoader"
    if is_of_generator(adapter):
        return "generator"
    return "other" if py_dataset_of(adapter) is None else "PyDataset"
