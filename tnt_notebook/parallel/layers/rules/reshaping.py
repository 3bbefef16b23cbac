"""What puts values together, or numbers in other places."""

from __future__ import annotations

from collections.abc import Iterator

import keras

from tnt_notebook.parallel.layers.rule import Cut, Site, Way, name_of, rule


@rule(keras.layers.Concatenate)
def concatenate(site: Site, parts: int) -> Iterator[Way]:
    """Along the dimensions in which nothing is joined."""
    given = site.gives[0]
    joined = site.layer.axis % len(given)
    if len(site.gives) > 1:
        return
    for dim in site.divisible(given, parts):
        if dim != joined:
            yield Way(name_of(len(given), dim), [Cut(dim)] * len(site.takes), [dim])
