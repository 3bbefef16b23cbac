"""Variables of which each rank keeps a part, as metrics between the times at which ranks meet. Of
all others ranks have the same, and what is assigned to them is whole."""

from __future__ import annotations

from tnt_notebook.parallel.graph.layouts import PART
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


@rule("ReadVariableOp")
def read(node: Node) -> Decision | None:
    return Decision([PART], [PART]) if node.parts else None


@rule("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
def assigned(node: Node) -> Decision | None:
    return Decision([PART, PART], []) if node.has[0] == PART else None
