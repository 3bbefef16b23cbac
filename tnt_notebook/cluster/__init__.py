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
    from tnt_notebook.cluster.handles.fit import Fit
    from tnt_notebook.cluster.handles.sweep import Sweep
    from tnt_notebook.cluster.life.status import Links, RankStatus

_HOME = {
    "Cluster": "cluster", "Fit": "handles.fit", "Links": "life.status",
    "RankStatus": "life.status", "Sweep": "handles.sweep",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
