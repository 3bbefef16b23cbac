"""Variables of which each rank keeps a part, as metrics between the times at which ranks meet, or
gives a part when a step has ended. Of all others ranks have the same, and what is assigned to them
is whole."""

from __future__ import annotations

from tnt_notebook.parallel.graph.layouts import LATER, PART, SAME
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


@rule("ReadVariableOp")
def read(node: Node) -> Decision | None:
    if node.has[0] == LATER:
        return Decision([LATER], [SAME])
    return Decision([PART], [PART]) if node.parts else None


@rule("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
def assigned(node: Node) -> Decision | None:
    if node.has[0] == LATER and node.type == "AssignVariableOp":
        return Decision([LATER, PART], [])
    return Decision([PART, PART], []) if node.has[0] == PART else None
