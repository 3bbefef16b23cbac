"""Files that a reader is given: a name, names, or a pattern with ``*``."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from tnt_notebook.errors import DataError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def files_of(paths: Paths) -> list[str]:
    """The files, each pattern's sorted by name: the same on all ranks.

    Raises:
        DataError: a pattern fits nothing, or there are no files at all.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[str] = []
    for path in [os.fspath(each) for each in given]:
        if not glob.has_magic(path) or os.path.exists(path):
            found.append(path)
            continue
        fitting = sorted(glob.glob(path, recursive=True))
        if not fitting:
            raise DataError(f"No file is named like {path}, seen from {os.getcwd()}.")
        found += fitting
    if not found:
        raise DataError("No files are given to read.")
    return found


def existing(path: str) -> str:
    """A path, which has to be there.

    Raises:
        DataError: it is not.
    """
    if not os.path.exists(path):
        raise DataError(f"There is no {path}, seen from {os.getcwd()}.")
    return path
