"""Notebook side: start, find, watch, interrupt and stop engines, and run cells on them.

Loads neither TensorFlow nor MPI: only data crosses to the engines. The names below are loaded when
they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Cluster", "Fit", "Links", "RankStatus", "Sweep"]

if TYPE_CHECKING:
    from tnt_notebook.cluster.cluster import Cluster
    from tnt_notebook.cluster.fit import Fit
    from tnt_notebook.cluster.status import Links, RankStatus
    from tnt_notebook.cluster.sweep import Sweep

_HOME = {
    "Cluster": "cluster", "Fit": "fit", "Links": "status", "RankStatus": "status", "Sweep": "sweep",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
