"""Ops that do not look at numbers, or only check them."""

from __future__ import annotations

from tnt_notebook.parallel.graph.layouts import PART, SAME, Layout
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


@rule("ZerosLike", "OnesLike")
def filled_like(node: Node) -> Decision:
    """What the operand has is not looked at, but for its shape."""
    has = node.has[0]
    gives: Layout = has if has != PART else SAME
    return Decision([has], [gives])


@rule("Assert")
def checked(node: Node) -> Decision:
    """What is said where the check fails is what the rank has."""
    return Decision([SAME, *node.has[1:]], [])
