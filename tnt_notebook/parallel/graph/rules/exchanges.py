"""Exchanges of ranks that have the same samples, along other axes of a mesh: what each of them has,
the ranks beside it have of their samples, in the same layout."""

from __future__ import annotations

import tensorflow as tf

from tnt_notebook.parallel.graph.layouts import PART, SAME, SIZE, Layout, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


@rule("TntAllreduce")
def reduced(node: Node) -> Decision:
    """Tensors, and by what they are scaled."""
    is_sum = node.attr("reduction") == "sum"
    wants: list[Layout] = [
        SAME if has == SIZE or (has == PART and not is_sum) else has for has in node.has[:-1]
    ]
    return Decision([*wants, SAME], wants)


@rule("TntMove")
def moved(node: Node) -> Decision | None:
    """Boxes of an array, and what stands where no box comes to."""
    has = node.has[0]
    if has == PART:
        is_linear = tf.get_static_value(node.inputs[1]) == 0
        return Decision([PART, SAME], [PART]) if is_linear else None
    if isinstance(has, Rows) and has.dim in node.op.get_attr("dims"):
        return None
    return Decision([has, SAME], [has])
