"""Variables of the notebook on their way to the ranks."""

from __future__ import annotations

from typing import Any

from ipyparallel.serialize import PrePickled, serialize_object

from tnt_notebook.errors import ClusterError


def packed(values: dict[str, Any]) -> PrePickled:
    """Values serialised once for all ranks; arrays are not copied.

    Raises:
        ClusterError: a value cannot be serialised; the message names it.
    """
    try:
        return PrePickled(values)
    except Exception as error:  # whatever __reduce__ of a stranger raises
        name = next((name for name in values if not _sendable(values[name])), None)
        if name is None:
            raise
        raise ClusterError(
            f"{name!r} is of type {type(values[name]).__name__}, which cannot be sent to the ranks "
            f"({type(error).__name__}: {error}). Push plain data (numbers, lists, dicts, arrays), "
            "or make the object in a %%tnt cell."
        ) from error


def _sendable(value: Any) -> bool:
    try:
        serialize_object(value)
    except Exception:  # as above; what it was is told there
        return False
    return True
