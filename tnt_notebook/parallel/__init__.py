"""Engine side: Keras models that train on all ranks.

Two ways in: ``with distributed(): model.fit(...)``, which ``%%tnt_fit`` puts around a cell, and
``Model(model).fit(...)`` for scripts. Importing this package loads no TensorFlow: schedules of
:mod:`.pipeline` are plain data that a notebook may draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tnt_notebook.parallel.model import Model
    from tnt_notebook.parallel.scope import distributed
    from tnt_notebook.parallel.session import Run, Session

__all__ = ["Model", "Run", "Session", "distributed"]

_HOME = {"Model": "model", "Run": "session", "Session": "session", "distributed": "scope"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
