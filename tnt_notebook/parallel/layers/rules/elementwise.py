"""What computes each number by itself, or of those in the same place of several values."""

from __future__ import annotations

from collections.abc import Iterator

import keras

from tnt_notebook.parallel.layers.rule import Cut, Shape, Site, Way, is_elementwise, name_of, rule


def cuts(site: Site, parts: int, dims: list[int]) -> Iterator[Way]:
    """A way for each of some dimensions of the output: of inputs, those that have it are cut."""
    given = site.gives[0]
    if any(len(shape) != len(given) for shape in site.gives):
        return
    for dim in dims:
        yield Way(
            name_of(len(given), dim), [_cut(shape, given, dim) for shape in site.takes],
            [dim] * len(site.gives),
        )  # fmt: skip


def _cut(shape: Shape, given: Shape, dim: int) -> Cut | None:
    """Where a dimension of what is given is, in what is taken; None where it is repeated."""
    own = dim - (len(given) - len(shape))
    return Cut(own) if own >= 0 and shape[own] == given[dim] else None


@rule(
    keras.layers.Add, keras.layers.Average, keras.layers.Dropout, keras.layers.ELU,
    keras.layers.GaussianDropout, keras.layers.GaussianNoise, keras.layers.Identity,
    keras.layers.LeakyReLU, keras.layers.Maximum, keras.layers.Minimum, keras.layers.Multiply,
    keras.layers.ReLU, keras.layers.Rescaling, keras.layers.Subtract,
)  # fmt: skip
def elementwise(site: Site, parts: int) -> Iterator[Way]:
    if getattr(site.layer, "noise_shape", None) is None:
        yield from cuts(site, parts, site.divisible(site.gives[0], parts))


@rule(keras.layers.Activation, keras.layers.Softmax)
def activation(site: Site, parts: int) -> Iterator[Way]:
    """Of Keras's own functions those that do not look at numbers one by one look at the last
    dimension."""
    layer, given = site.layer, site.gives[0]
    dims = site.divisible(given, parts)
    function = getattr(layer, "activation", None)
    if isinstance(layer, keras.layers.Softmax):
        axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
        dims = [dim for dim in dims if dim not in [axis % len(given) for axis in axes]]
    elif not is_elementwise(function):
        dims = [dim for dim in dims if dim != len(given) - 1]
    yield from cuts(site, parts, dims)
