"""Rules for ops, a file a family."""

from tnt_notebook.parallel.graph.rules import (
    control,
    elements,
    exchanges,
    images,
    indexing,
    lists,
    marks,
    products,
    randoms,
    reductions,
    sequences,
    shapes,
    slices,
    softmax,
    states,
    variables,
)

__all__ = [
    "control", "elements", "exchanges", "images", "indexing", "lists", "marks", "products",
    "randoms", "reductions", "sequences", "shapes", "slices", "softmax", "states", "variables",
]  # fmt: skip
