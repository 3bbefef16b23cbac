"""Which dimensions of operands are repeated so that their shapes match: of gradients of
broadcasts."""

from __future__ import annotations

import numpy as np

from tnt_notebook.parallel.graph.counts import ONE, is_one, number
from tnt_notebook.parallel.graph.node import Node


def repeated_axes(node: Node) -> dict[int, np.ndarray] | None:
    """The dimensions along which operands were repeated: there they are of one, or lack. Sizes
    that only a run tells are taken for more than one, but beside samples."""
    vectors = [node.counts(i) for i in (0, 1)]
    if any(vector is None for vector in vectors):
        return None
    shapes = [vector.tolist() for vector in vectors if vector is not None]
    rank = max(map(len, shapes))
    padded = [[ONE] * (rank - len(shape)) + shape for shape in shapes]
    if any(
        a and b and ((a.rows and b.of) or (b.rows and a.of)) for a, b in zip(*padded, strict=True)
    ):
        return None
    return {
        i: np.array([number(dim) for dim in range(rank) if is_one(own[dim])], object)
        for i, own in enumerate(padded)
    }


def is_broadcast_known(node: Node) -> bool:
    """Whether it is known of each dimension of two shapes if one is repeated to match the other."""
    vectors = [node.counts(i) for i in (0, 1)]
    if any(vector is None or None in vector for vector in vectors):
        return False
    one, other = (vector[::-1].tolist() for vector in vectors if vector is not None)
    return all(
        is_one(a) or is_one(b) or a.bare == b.bare or (a.rows and not b.of) or (b.rows and not a.of)
        for a, b in zip(one, other, strict=False)
    ) and not any(each.of for each in (*one[len(other) :], *other[len(one) :]))
