"""Whether there is a GPI-2 to test with; `TNT_GASPI_LIBRARY` says where, if not installed."""

import ctypes

import pytest

from tnt_notebook.comm import gaspi


def unavailable() -> str:
    """Why tests of it cannot run here, or nothing."""
    try:
        ctypes.CDLL(gaspi.library())
    except OSError as error:
        return f"there is no GPI-2: {error}"
    return ""


needed = pytest.mark.skipif(
    bool(unavailable()), reason=f"this machine does not allow it: {unavailable()}"
)
