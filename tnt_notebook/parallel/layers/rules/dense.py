"""Dense layers by columns and by rows of the kernel (Shoeybi et al., Megatron-LM, 2019)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras

from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    Cut,
    Gives,
    Local,
    Site,
    Way,
    added_once,
    cut_by_inputs,
    cut_by_outputs,
    ends_in_sum,
    is_adapted,
    is_elementwise,
    rule,
    summed_up,
)
from tnt_notebook.parallel.layers.rules.activated import activated, is_known


def _run(local: Local) -> list[Any]:
    layer, columns, rows = local.layer, local.axes("columns"), local.axes("rows")
    if not rows:
        units = layer.kernel.shape[1] if columns else layer.units
        if not columns or is_elementwise(layer.activation):
            return local.plain(units=units)
        product, *others = local.plain(units=units, activation=None)
        return [activated(local, product, columns), *others]
    # Each rank has summands of the product; the bias counts once.
    bias = layer.bias
    (summand,) = local.plain(use_bias=False, bias=None, activation=None)
    return [summed_up(local, summand, bias, rows, lambda x: activated(local, x, columns))]


@rule(keras.layers.Dense, run=_run)
def dense(site: Site, parts: int) -> Iterator[Way]:
    layer, (taken, *masks), (given, *_) = site.layer, site.takes, site.gives
    if is_adapted(layer):
        return
    last, inputs = len(taken) - 1, taken[-1]
    rest: list[Cut | None] = [None] * len(masks)
    others: list[Gives] = [None] * (len(site.gives) - 1)
    for dim in site.divisible(given, parts):
        if dim < last:
            yield Way(f"dim {dim}", [Cut(dim), *rest], [dim, *others])
    if layer.units >= parts and is_known(layer.activation):
        yield Way("columns", [None, *rest], [last, *others], cut_by_outputs(layer, 1))
    if inputs is not None and inputs >= parts:
        gives, weights = cut_by_inputs(layer, 0)
        yield Way("rows", [Cut(last), *rest], [gives, *others], weights)


def _run_einsum(local: Local) -> list[Any]:
    rows, layer = local.axes("rows"), local.layer
    if not rows:
        return local.plain()
    bias = layer.bias
    (summand,) = local.plain(bias=None)
    return [added_once(local, summand, bias, rows)]


@rule(keras.layers.EinsumDense, run=_run_einsum)
def einsum_dense(site: Site, parts: int) -> Iterator[Way]:
    """By what a label of the equation is of: the kernel and the output, the kernel and the input,
    or both values."""
    layer, taken, given = site.layer, site.takes[0], site.gives[0]
    equation = re.fullmatch("([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", layer.equation)
    if is_adapted(layer) or equation is None or len(site.takes) > 1:
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
