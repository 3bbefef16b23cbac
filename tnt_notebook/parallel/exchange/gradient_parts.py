"""Gradients as lists of tensors, dense and sparse ones alike, so that variables can keep them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.exchange import ExchangeStep

PARTS = ("values", "rows")

#: All of a gradient; or of a sparse one the values of some rows, and which rows.
Parts = list[tf.Tensor]


def parts_of(gradient: Any) -> Parts:
    """A gradient, in parts."""
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [tf.convert_to_tensor(gradient)]


def joined(parts: Sequence[tf.Tensor], variable: keras.Variable) -> Any:
    """The gradient of a variable, of its parts."""
    if len(parts) == 1:
        return parts[0]
    values, rows = parts
    return tf.IndexedSlices(values, rows, tf.constant([*variable.shape], rows.dtype))


def kept(
    step: ExchangeStep, name: str, of: keras.Variable, like: Sequence[tf.Tensor], rule: str = "same"
) -> list[tf.Variable]:
    """Variables for parts of a gradient, of any number of rows where it is sparse."""
    if len(like) == 1:
        return [step.keep(name, of, like[0], rule)]
    some = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in like]
    pairs = zip(PARTS, some, strict=True)
    return [step.keep(f"{name} {what}", of, part, rule) for what, part in pairs]


def kept_before(step: ExchangeStep, name: str, of: keras.Variable) -> list[tf.Variable]:
    """The variables that :func:`kept` has made."""
    dense = step.state.found(name, of)
    sparse = [step.state.found(f"{name} {what}", of) for what in PARTS]
    return [v for v in (dense, *sparse) if v is not None]


def assign(variables: Sequence[tf.Variable], parts: Sequence[tf.Tensor]) -> None:
    for variable, part in zip(variables, parts, strict=True):
        variable.assign(part)


def read(variables: Sequence[tf.Variable]) -> Parts:
    return [variable.read_value() for variable in variables]
