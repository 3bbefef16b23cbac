"""Ops along one dimension, or along the last ones: others are as they were."""

from __future__ import annotations

from tnt_notebook.parallel.graph.layouts import PART, SAME, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


def _apart_from(node: Node, dims: list[int] | None, linear: bool) -> Decision | None:
    """The same dimensions come out, and samples are not among those that the op is about."""
    has = node.has[0]
    others = [SAME] * (len(node.inputs) - 1)
    if has == PART and linear:
        return Decision([PART, *others], node.each(PART))
    if not isinstance(has, Rows) or dims is None or has.dim in dims:
        return None
    return Decision([has, *others], node.each(has))


@rule("Cumsum")
def running_sum(node: Node) -> Decision | None:
    return _apart_from(node, node.axes(1, of=0), True)


@rule("Cumprod", "CumulativeLogsumexp", "Roll")
def running(node: Node) -> Decision | None:
    if node.type == "Roll":
        return _apart_from(node, node.axes(2, of=0), True)
    return _apart_from(node, node.axes(1, of=0), False)


@rule("ReverseV2")
def reverse(node: Node) -> Decision | None:
    return _apart_from(node, node.axes(1, of=0), True)


def _last(node: Node, count: int, linear: bool = False) -> Decision | None:
    rank = node.rank(0)
    dims = None if rank is None else [*range(rank - count, rank)]
    return _apart_from(node, dims, linear)


@rule("TopKV2", "TopK", "InTopK")
def along_the_last(node: Node) -> Decision | None:
    return _last(node, 1)


@rule("FFT", "IFFT")
def along_the_last_linearly(node: Node) -> Decision | None:
    return _last(node, 1, True)


@rule("MatrixBandPart", "FFT2D", "IFFT2D")
def of_matrices_linearly(node: Node) -> Decision | None:
    return _last(node, 2, True)


@rule("Cholesky", "MatrixInverse", "MatrixDeterminant", "MatrixExponential", "Qr", "Svd",
      "SelfAdjointEigV2")  # fmt: skip
def of_matrices(node: Node) -> Decision | None:
    decision = _last(node, 2)
    # A determinant has no matrix any more, its samples stay where they were.
    return decision


@rule("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def diagonals(node: Node) -> Decision | None:
    return _last(node, 2)


@rule("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def from_diagonals(node: Node) -> Decision | None:
    return _last(node, 1)


@rule("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def set_diagonals(node: Node) -> Decision | None:
    rank, has = node.rank(0), node.has[0]
    if rank is None or not isinstance(has, Rows) or has.dim >= rank - 2:
        return None
    rest = [SAME] * (len(node.inputs) - 2)
    return Decision([has, has, *rest], [has])
