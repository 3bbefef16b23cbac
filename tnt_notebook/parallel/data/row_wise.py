"""A function of a batch that does the same with each of its samples says so."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_MARK = "computes_each_row_alone"


def row_wise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Says that a function of batches computes each row of its result of the same row of the batch.

    For a ``map`` of a dataset that comes after its ``batch``: each rank then makes its own rows
    only. Without it every rank maps the whole batch, since the function might look at all of it.
    What such a function does in truth is not checked.

    Args:
        function: from a batch, in tensors of shape (samples, ...), to tensors that have as many
            rows.

    Returns:
        A function that does the same, and says so.

    Example::

        images = images.batch(64).map(tnt.row_wise(lambda x, y: (x / 255, y)))
    """

    @functools.wraps(function)
    def marked(*batch: Any) -> Any:
        return function(*batch)

    setattr(marked, _MARK, True)
    return marked


def is_row_wise(function: Callable[..., Any]) -> bool:
    """Whether :func:`row_wise` was said of it."""
    return bool(getattr(function, _MARK, False))
