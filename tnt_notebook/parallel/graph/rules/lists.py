"""Lists of tensors, as loops over steps keep them: a list is of what its elements are of."""

from __future__ import annotations

import numpy as np

from tnt_notebook.parallel.graph.layouts import (
    EMPTY,
    PART,
    SAME,
    SIZE,
    Layout,
    Listed,
    Part,
    Rows,
    Size,
    common,
)
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


def _shape(has: Layout) -> Layout:
    """Of the shape of elements that an op is given: where samples count in it, a rank's own."""
    return has if has == SIZE else SAME


def element_of(has: Layout) -> Layout:
    """What is in a list."""
    return has.element or SAME if isinstance(has, Listed) else has


def list_of(element: Layout) -> Layout:
    return Listed(element) if isinstance(element, (Rows, Part, Size)) else SAME


@rule("EmptyTensorList", "TensorListReserve")
def empty(node: Node) -> Decision:
    return Decision([_shape(node.has[0]), SAME], [EMPTY])


@rule("TensorListFromTensor")
def from_tensor(node: Node) -> Decision | None:
    has = node.has[0]
    shape = _shape(node.has[1])
    if isinstance(has, Rows) and has.dim > 0:
        return Decision([has, shape], [Listed(has.at(has.dim - 1))])
    return Decision([PART, shape], [Listed(PART)]) if has == PART else None


@rule("TensorListStack")
def stack(node: Node) -> Decision:
    element = element_of(node.has[0])
    gives = element.at(element.dim + 1) if isinstance(element, Rows) else element
    return Decision([node.has[0], _shape(node.has[1])], [gives])


@rule("TensorListGetItem")
def get_item(node: Node) -> Decision:
    return Decision([node.has[0], SAME, _shape(node.has[2])], [element_of(node.has[0])])


@rule("TensorListPopBack")
def pop(node: Node) -> Decision:
    return Decision([node.has[0], _shape(node.has[1])], [node.has[0], element_of(node.has[0])])


def _put(node: Node, at: int) -> Decision:
    has, item = node.has[0], node.has[at]
    if item == SIZE and not _is_told(node.counts(at)):
        item = SAME  # nobody would know any more which of them count samples
    is_alike = has == EMPTY or element_of(has) == item
    element = item if is_alike else common(element_of(has), item)
    wants: list[Layout] = [SAME] * len(node.inputs)
    wants[0], wants[at] = list_of(element), element
    return Decision(wants, [list_of(element)])


def _is_told(counts: np.ndarray | None) -> bool:
    """Whether numbers mean the same where a list is looked at as where it is made."""
    return counts is not None and all(each is not None and not each.of for each in counts.ravel())


@rule("TensorListSetItem")
def set_item(node: Node) -> Decision:
    return _put(node, 2)


@rule("TensorListPushBack")
def push(node: Node) -> Decision:
    return _put(node, 1)


@rule("TensorListLength", "TensorListElementShape")
def about(node: Node) -> Decision:
    return Decision(node.has, [SAME])
