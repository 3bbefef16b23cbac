"""Normalization: statistics over the axes that cut what they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.losses import moments_replaced
from tnt_notebook.parallel.layers.moves import shared, total
from tnt_notebook.parallel.layers.rule import SAME, Cut, Local, Site, Way, name_of, rule
from tnt_notebook.parallel.norm import moments_by


def _run(local: Local) -> list[Any]:
    layer = local.layer
    axes = [axis for axis, way in local.ways.items() if way.name != "channels"]
    if not axes:
        return local.plain()
    over = local.over_data if layer.synchronized else lambda x: x
    moments = moments_by(_summing(local, axes, over))
    with moments_replaced(moments):
        return local.plain(synchronized=True)


def _summing(
    local: Local, axes: list[str], over: Callable[[tf.Tensor], tf.Tensor]
) -> Callable[[tf.Tensor], tf.Tensor]:
    group, label = local.group(axes), f"statistics of {local.layer.name}"

    def summed(x: tf.Tensor) -> tf.Tensor:
        return over(shared(total(x, group, label), group, label))

    return summed


@rule(keras.layers.BatchNormalization, run=_run)
def batch_normalization(site: Site, parts: int) -> Iterator[Way]:
    layer, (shape, *masks) = site.layer, site.takes
    channels = layer.axis % len(shape)
    if masks:
        return
    moving = [layer.moving_mean, layer.moving_variance]
    for dim in site.divisible(shape, parts):
        if dim != channels:
            weights: dict[int, Any] = {id(v): SAME for v in moving}
            yield Way(name_of(len(shape), dim), [Cut(dim)], [dim], weights)
        else:
            own = [v for v in (layer.gamma, layer.beta, *moving) if v is not None]
            yield Way("channels", [Cut(dim)], [dim], {id(v): 0 for v in own})


@rule(keras.layers.LayerNormalization)
def layer_normalization(site: Site, parts: int) -> Iterator[Way]:
    """Along the dimensions of which there are no statistics."""
    layer, shape = site.layer, site.takes[0]
    axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    if len(site.takes) > 1:
        return
    for dim in site.divisible(shape, parts):
        if dim not in [axis % len(shape) for axis in axes]:
            yield Way(name_of(len(shape), dim), [Cut(dim)], [dim])


def _run_groups(local: Local) -> list[Any]:
    parts = local.ranks.mesh.along_all(local.axes("channels"))
    return local.plain(groups=local.layer.groups // parts)


@rule(keras.layers.GroupNormalization, run=_run_groups)
def group_normalization(site: Site, parts: int) -> Iterator[Way]:
    """By groups of channels."""
    layer, shape = site.layer, site.takes[0]
    channels = layer.axis % len(shape) if isinstance(layer.axis, int) else None
    if channels is not None and layer.groups % parts == 0 and len(site.takes) == 1:
        own = [v for v in (layer.gamma, layer.beta) if v is not None]
        yield Way("channels", [Cut(channels)], [channels], {id(v): 0 for v in own})
