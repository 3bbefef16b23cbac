"""Libraries that only some formats need."""

from __future__ import annotations

import importlib
from typing import Any

from tnt_notebook.errors import DataError


def library(name: str, reads: str) -> Any:
    """A module, loaded when it is needed.

    Args:
        name: as it is imported and installed.
        reads: which files need it.

    Raises:
        DataError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise DataError(
            f"{reads} are read with {name}, which is not installed here: pip install {name}, or "
            'pip install "tnt_notebook[data]" for all formats.'
        ) from None
