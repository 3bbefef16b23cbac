"""Dense layers by columns and by rows of the kernel (Shoeybi et al., Megatron-LM, 2019)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras

from tnt_notebook.parallel.layers.activations import is_elementwise
from tnt_notebook.parallel.layers.rule import PARTIAL, BlockCall, Cut, Gives, LayerCall, Way, rule
from tnt_notebook.parallel.layers.rules.activated import activated, is_known
from tnt_notebook.parallel.layers.rules.shared import (
    added_once,
    cut_by_inputs,
    cut_by_outputs,
    ends_in_sum,
    is_adapted,
    summed_up,
)


def _run(block_call: BlockCall) -> list[Any]:
    layer, columns, rows = block_call.layer, block_call.axes("columns"), block_call.axes("rows")
    if not rows:
        units = layer.kernel.shape[1] if columns else layer.units
        if not columns or is_elementwise(layer.activation):
            return block_call.plain(units=units)
        product, *others = block_call.plain(units=units, activation=None)
        return [activated(block_call, product, columns), *others]
    # Each rank has summands of the product; the bias counts once.
    bias = layer.bias
    (summand,) = block_call.plain(use_bias=False, bias=None, activation=None)
    return [summed_up(block_call, summand, bias, rows, lambda x: activated(block_call, x, columns))]


@rule(keras.layers.Dense, run=_run)
def dense(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer, (taken, *masks), (given, *_) = layer_call.layer, layer_call.takes, layer_call.gives
    if is_adapted(layer):
        return
    last, inputs = len(taken) - 1, taken[-1]
    rest: list[Cut | None] = [None] * len(masks)
    others: list[Gives] = [None] * (len(layer_call.gives) - 1)
    for dim in layer_call.divisible(given, parts):
        if dim < last:
            yield Way(f"dim {dim}", [Cut(dim), *rest], [dim, *others])
    if layer.units >= parts and is_known(layer.activation):
        yield Way("columns", [None, *rest], [last, *others], cut_by_outputs(layer, 1))
    if inputs is not None and inputs >= parts:
        gives, weights = cut_by_inputs(layer, 0)
        yield Way("rows", [Cut(last), *rest], [gives, *others], weights)


def _run_einsum(block_call: BlockCall) -> list[Any]:
    rows, layer = block_call.axes("rows"), block_call.layer
    if not rows:
        return block_call.plain()
    bias = layer.bias
    (summand,) = block_call.plain(bias=None)
    return [added_once(block_call, summand, bias, rows)]


@rule(keras.layers.EinsumDense, run=_run_einsum)
def einsum_dense(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """By what a label of the equation is of: the kernel and the output, the kernel and the input,
    or both values."""
    layer, taken, given = layer_call.layer, layer_call.takes[0], layer_call.gives[0]
    equation = re.fullmatch("([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", layer.equation)
    if is_adapted(layer) or equation is None or len(layer_call.takes) > 1:
        return
    of_input, of_kernel, of_output = equation.groups()
    kernel, bias = layer.kernel, layer.bias
    for label in dict.fromkeys(of_input + of_kernel + of_output):
        ins, outs = of_input.find(label), of_output.find(label)
        weight = of_kernel.find(label)
        size = taken[ins] if ins >= 0 else given[outs]
        if size is None or size < parts or ins == 0 or outs == 0:
            continue
        weights: dict[int, Any] = {id(kernel): weight} if weight >= 0 else {}
        if bias is not None and outs >= 0:
            dim = outs - (len(given) - len(bias.shape))
            if dim >= 0 and bias.shape[dim] > 1:
                weights[id(bias)] = dim
        if outs < 0 and ends_in_sum(layer):
            yield Way("rows", [Cut(ins)], [PARTIAL], weights)
        elif ins < 0 and is_elementwise(layer.activation):
            yield Way("columns", [None], [outs], weights)
        elif ins >= 0 and outs >= 0 and is_elementwise(layer.activation):
            yield Way(f"dim {outs}", [Cut(ins)], [outs], weights)
