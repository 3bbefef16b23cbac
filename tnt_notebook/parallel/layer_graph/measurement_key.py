"""What a measurement of a call is known by: the same for calls that take the same time here."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Collection
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.graph import layers_within
from tnt_notebook.parallel.layer_graph.graph import Call, Graph
from tnt_notebook.parallel.layer_graph.timing import inputs_of
from tnt_notebook.plan import measurements

#: Another number makes what was measured before unknown: for when it is measured in another way.
_METHOD = 7


def key_of(call: Call, graph: Graph, learning: Collection[int], rows: int) -> str:
    """What a measurement of a call is known by: the same for calls that take the same time."""
    values = [
        (tuple(graph.specs[n].shape[1:]), str(graph.specs[n].dtype), n in learning)
        for n in (*inputs_of(call, learning), *call.gives)
    ]
    operation = call.operation
    if not is_lasting(call):
        what = {"only": id(operation)}
    elif isinstance(operation, keras.Layer):
        what = {k: v for k, v in operation.get_config().items() if k != "name"}
        what["trains"] = len(operation.trainable_variables)
    else:  # an operation of keras.ops
        what = {k: v for k, v in vars(operation).items() if k != "name" and k[0] != "_"}
    kind = f"{type(operation).__module__}.{type(operation).__name__}"
    return measurements.key_of(f"{machine()} {kind} {what} {values} {call.constants} {rows}")


def is_lasting(call: Call) -> bool:
    """Whether what a call does depends on what is in its key only: one's own code may change, or
    have no config."""
    operation = call.operation
    if not isinstance(operation, keras.Layer):
        return _is_known(operation)
    if not all(map(_is_known, layers_within(operation))):
        return False
    try:
        operation.get_config()
    except Exception:  # of a regularizer of one's own, say
        return False
    return True


def _is_known(operation: Any) -> bool:
    return type(operation).__module__.startswith(("keras.", "tnt_notebook."))


@functools.cache
def machine() -> str:
    """What measurements depend on beside the model, as long as the process lives."""
    devices = [
        tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    threads = threads or os.environ.get("TF_NUM_INTRAOP_THREADS")
    threads = threads or len(os.sched_getaffinity(0))
    return f"{_METHOD} {_cpu()} {threads} {devices} {tf.__version__} {keras.__version__}"


def _cpu() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
