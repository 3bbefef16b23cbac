"""Arrays on their way between notebook and ranks, with dtypes that NumPy does not know by itself.

ipyparallel sends the bytes of an array with the letter of its dtype, which for bfloat16 and other
dtypes of ``ml_dtypes`` means nothing: there they would be raw bytes. Both sides use this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ipyparallel.serialize import canning


class ExtensionArray(canning.CannedArray):
    """An array that travels as unsigned integers, and by the name of its dtype."""

    def __init__(self, array: np.ndarray) -> None:
        self.extension = array.dtype.name
        super().__init__(array.view(f"u{array.dtype.itemsize}"))

    def get_object(self, g: Any = None) -> np.ndarray:
        """The array, where it has arrived."""
        import ml_dtypes

        return super().get_object(g).view(np.dtype(getattr(ml_dtypes, self.extension)))


def install() -> None:
    """Makes ipyparallel send such arrays whole."""
    canning.can_map.pop("numpy.ndarray", None)  # as it is named until it is used
    canning.can_map[np.ndarray] = _canned


def _canned(array: np.ndarray) -> canning.CannedArray:
    made_elsewhere = array.dtype.isbuiltin == 2
    return ExtensionArray(array) if made_elsewhere else canning.CannedArray(array)
