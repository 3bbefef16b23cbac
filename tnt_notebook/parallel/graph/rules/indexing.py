"""Ops that take and put by indices."""

from __future__ import annotations

from tnt_notebook.parallel.graph.layouts import PART, SAME, SIZE, Layout, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


@rule("GatherV2")
def gather(node: Node) -> Decision | None:
    values, indices = node.has[0], node.has[1]
    axes, batch = node.axes(2, of=0), node.attr("batch_dims")
    rank, of_indices = node.rank(0), node.rank(1)
    if axes is None or rank is None or of_indices is None:
        return None
    axis = axes[0]
    if batch:
        rows = [has for has in (values, indices) if isinstance(has, Rows)]
        if rows and rows[0].dim < batch:
            return Decision([rows[0], rows[0], SAME], [rows[0]])
        return None
    if isinstance(indices, Rows):
        # Of what all have each rank takes for its own samples.
        return Decision([SAME, indices, SAME], [indices.at(axis + indices.dim)])
    if isinstance(values, Rows) and values.dim != axis:
        dim = values.dim if values.dim < axis else values.dim + of_indices - 1
        return Decision([values, SAME, SAME], [values.at(dim)])
    return Decision([PART, SAME, SAME], [PART]) if values == PART else None


@rule("ResourceGather")
def gather_of_variable(node: Node) -> Decision | None:
    indices = node.has[1]
    if node.attr("batch_dims") or not isinstance(indices, Rows):
        return None
    return Decision([SAME, indices], [indices])


@rule("GatherNd", "ResourceGatherNd")
def gather_by_vectors(node: Node) -> Decision | None:
    indices, rank = node.has[1], node.rank(1)
    if isinstance(indices, Rows) and rank is not None and indices.dim < rank - 1:
        return Decision([SAME, indices], [indices])
    return None


@rule("OneHot")
def one_hot(node: Node) -> Decision | None:
    has, rank, axis = node.has[0], node.rank(0), node.attr("axis")
    if not isinstance(has, Rows) or rank is None:
        return None
    axis = rank if axis == -1 else axis
    return Decision([has, SAME, SAME, SAME], [has.at(has.dim + (axis <= has.dim))])


@rule("UnsortedSegmentSum")
def segment_sums(node: Node) -> Decision | None:
    """Each rank adds up what its samples put into each segment."""
    rows = [has for i, has in node.rows if i < 2]
    if not rows or SIZE in node.has or node.has[2] != SAME:
        return None
    of_indices = node.rank(1)
    if of_indices is None or rows[0].dim >= of_indices:
        has = node.has[0]
        if isinstance(has, Rows) and of_indices is not None and node.has[1] == SAME:
            return Decision([has, SAME, SAME], [has.at(has.dim - of_indices + 1)])
        return None
    return Decision([rows[0], rows[0], SAME], [PART])


@rule("ScatterNd")
def scatter(node: Node) -> Decision | None:
    rows = [has for i, has in node.rows if i < 2]
    rank = node.rank(0)
    if not rows or node.has[2] != SAME or rank is None or any(r.dim >= rank - 1 for r in rows):
        return None
    return Decision([rows[0], rows[0], SAME], [PART])


@rule("Bincount", "DenseBincount")
def counted(node: Node) -> Decision | None:
    has, rank = node.has[0], node.rank(0)
    if node.type == "DenseBincount" and isinstance(has, Rows) and rank is not None:
        is_weighted = node.inputs[2].shape.num_elements() != 0
        wants: list[Layout] = [has, SAME, has if is_weighted else SAME]
        if rank == 2 and has.dim == 0:
            return Decision(wants, [has])
        if rank == 1 and not node.attr("binary_output"):
            return Decision(wants, [PART])
    return None


@rule("LookupTableFindV2")
def look_up(node: Node) -> Decision | None:
    has = node.has[1]
    return Decision([SAME, has, SAME], [has]) if isinstance(has, Rows) else None
