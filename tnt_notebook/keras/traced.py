"""What ops of a traced graph change, and what lists of loops hold. The same from TensorFlow 2.16 to
2.21."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import full_type_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import handle_data_util

#: Ops that have a state and leave it as it is.
_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}


def only_reads(node: Any, functions: Mapping[str, Any]) -> bool:
    """Whether a loop, a condition or a call changes nothing, and draws nothing.

    Args:
        node: a tf.compat.v1.NodeDef.
        functions: definitions of those of the graph, by name.
    """
    names = [f.name for a in node.attr.values() for f in (a.func, *a.list.func) if f.name]
    return bool(names) and all(
        inner.op in _READS or _has_no_state(inner) or only_reads(inner, functions)
        for name in names
        for inner in functions[name].node_def
    )


def _has_no_state(node: Any) -> bool:
    known = op_def_registry.get(node.op)
    return known is not None and not known.is_stateful


def elements_of_list(tensor: tf.Tensor) -> list[tuple[tf.DType, list[int]]]:
    """Of a list, as loops make them in a traced graph, the dtype and the axes of what it holds, -1
    where they may differ between calls; nothing for any other tensor."""
    about = handle_data_util.get_resource_handle_data(tensor)
    return [
        (tf.as_dtype(of.dtype), [axis.size for axis in of.shape.dim])
        for of in (about.shape_and_type if about is not None else ())
        if of.type.type_id == full_type_pb2.TFT_ARRAY
    ]
