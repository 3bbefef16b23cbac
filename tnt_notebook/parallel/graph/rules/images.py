"""Ops on batches, whose first dimension has the samples: convolutions, pools, what a sample has its
own of."""

from __future__ import annotations

from collections.abc import Sequence

from tnt_notebook.parallel.graph.counts import is_one
from tnt_notebook.parallel.graph.layouts import PART, SAME, SIZE, Layout, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule

#: Of these inputs, by index, the first dimension is of samples, as of all outputs.
_BATCHES = {
    "Conv2D": (0,), "Conv3D": (0,), "DepthwiseConv2dNative": (0,), "Dilation2D": (0,),
    "MaxPool": (0,), "MaxPoolGrad": (0, 1, 2), "MaxPoolGradGrad": (0, 1, 2),
    "MaxPool3D": (0,), "MaxPool3DGrad": (0, 1, 2), "AvgPool": (0,), "AvgPool3D": (0,),
    "MaxPoolWithArgmax": (), "LRN": (0,), "LRNGrad": (0, 1, 2),
    "Conv": (0,), "SpaceToDepth": (0,), "DepthToSpace": (0,), "ExtractImagePatches": (0,),
    "ResizeBilinear": (0,), "ResizeBilinearGrad": (0, 1), "ResizeNearestNeighbor": (0,),
    "ResizeNearestNeighborGrad": (0,), "ResizeBicubic": (0,), "ResizeBicubicGrad": (0, 1),
    "ResizeArea": (0,), "ScaleAndTranslate": (0,), "ScaleAndTranslateGrad": (0, 1),
    "AdjustHue": (0,), "AdjustSaturation": (0,), "RGBToHSV": (0,),
    "HSVToRGB": (0,), "DecodeRaw": (0,), "Bucketize": (0,),
    "InTopKV2": (0, 1), "CTCLoss": (),
}  # fmt: skip

#: Gradients towards inputs: they are given the input's shape first.
_TOWARDS_INPUTS = {
    "Conv2DBackpropInput": 2, "Conv3DBackpropInputV2": 2, "DepthwiseConv2dNativeBackpropInput": 2,
    "AvgPoolGrad": 1, "AvgPool3DGrad": 1,
}  # fmt: skip

_TOWARDS_FILTERS = (
    "Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter",
    "Dilation2DBackpropFilter",
)  # fmt: skip


@rule(*_BATCHES)
def of_batches(node: Node) -> Decision | None:
    return along_the_first(node, _BATCHES[node.type])


def along_the_first(node: Node, indices: Sequence[int]) -> Decision | None:
    """Of an op whose inputs with these indices have samples along their first dimension."""
    rows = [has for i, has in node.rows if i in indices]
    if not rows or any(has.dim != 0 for has in rows):
        return None
    # Where entries of a sample are counted in a run alone, as many of each operand are paired.
    first = min(rows, key=lambda has: len(has.inner.of))
    wants: list[Layout] = [SAME] * len(node.inputs)
    for i in indices:
        has = node.has[i]
        counted = isinstance(has, Rows) and has.outer == first.outer and has.inner.of
        wants[i] = has if counted else first
    return Decision(wants, node.each(first))


@rule("AdjustContrastv2")
def adjusted(node: Node) -> Decision | None:
    """The mean is of an image: of its last three dimensions, whatever comes before them."""
    has, rank = node.has[0], node.rank(0)
    if not isinstance(has, Rows) or rank is None or has.dim >= rank - 3:
        return None
    return Decision([has, SAME], [has])


@rule("ImageProjectiveTransformV3")
def transformed(node: Node) -> Decision | None:
    """A transformation for each image, or one for all."""
    has, of_each = node.has[0], node.has[1]
    if not isinstance(has, Rows) or has.dim != 0:
        return None
    dims = node.dims(1)
    one_for_all = dims is not None and is_one(dims[0])
    if not one_for_all and not isinstance(of_each, Rows):
        return None
    return Decision([has, SAME if one_for_all else has, *node.each(SAME) * 2], [has])


@rule(*_TOWARDS_INPUTS)
def towards_input(node: Node) -> Decision | None:
    index = _TOWARDS_INPUTS[node.type]
    has, shape = node.has[index], node.counts(0)
    if not isinstance(has, Rows) or has.dim != 0 or node.has[0] != SIZE:
        return None
    if shape is None or shape[0] is None or not shape[0].rows:
        return None
    wants = [SIZE if i == 0 else has if i == index else SAME for i in range(len(node.inputs))]
    return Decision(wants, node.each(has))


@rule(*_TOWARDS_FILTERS)
def towards_filter(node: Node) -> Decision | None:
    has = [node.has[0], node.has[2]]
    rows = [each for each in has if isinstance(each, Rows)]
    if not rows or any(each.dim != 0 for each in rows):
        return None
    return Decision([rows[0], SAME, rows[0]], [PART])
