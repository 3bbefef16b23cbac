"""Dense layers by columns and by rows of the kernel (Shoeybi et al., Megatron-LM, 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.layers.moves import total
from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    SAME,
    Cut,
    Gives,
    Local,
    Site,
    Way,
    is_elementwise,
    rule,
)


def _run(local: Local) -> list[Any]:
    layer, columns, rows = local.layer, local.axes("columns"), local.axes("rows")
    if not rows:
        units = layer.kernel.shape[1] if columns else layer.units
        return local.plain(units=units)
    # Each rank has summands of the product; the bias counts once.
    group, bias = local.group(rows), layer.bias
    with_bias = bias is not None and layer.use_bias
    (summand,) = local.plain(use_bias=False, bias=None, activation=None)
    if _ends_in_sum(layer):
        if with_bias:
            first = all(local.index(axis) == 0 for axis in rows)
            summand += tf.cast(bias, summand.dtype) * tf.cast(first, summand.dtype)
        return [summand]
    result = total(summand, group, f"product of {layer.name}")
    if with_bias:
        result += tf.cast(bias, result.dtype)
    return [result if layer.activation is None else layer.activation(result)]


def _ends_in_sum(layer: Any) -> bool:
    return layer.activation in (None, keras.activations.linear)


@rule(keras.layers.Dense, run=_run)
def dense(site: Site, parts: int) -> Iterator[Way]:
    layer, (taken, *masks), (given, *_) = site.layer, site.takes, site.gives
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
        return
    last, inputs = len(taken) - 1, taken[-1]
    rest: list[Cut | None] = [None] * len(masks)
    others: list[Gives] = [None] * (len(site.gives) - 1)
    kernel, bias = layer.kernel, layer.bias
    for dim in site.divisible(given, parts):
        if dim < last:
            yield Way(f"dim {dim}", [Cut(dim), *rest], [dim, *others])
    if layer.units >= parts and is_elementwise(layer.activation):
        weights: dict[int, Any] = {id(kernel): 1}
        if bias is not None:
            weights[id(bias)] = 0
        yield Way("columns", [None, *rest], [last, *others], weights)
    if inputs is not None and inputs >= parts:
        weights = {id(kernel): 0}
        gives: Gives = PARTIAL
        if not _ends_in_sum(layer):
            gives = None
            if bias is not None:
                weights[id(bias)] = SAME
        yield Way("rows", [Cut(last), *rest], [gives, *others], weights)
