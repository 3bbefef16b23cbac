"""Engine side: Keras models that train on all ranks.

Two ways in: ``with distributed(): model.fit(...)``, which ``%%tnt_fit`` puts around a cell, and
``Model(model).fit(...)`` for scripts.
"""

from __future__ import annotations

from tnt_notebook.parallel.model import Model
from tnt_notebook.parallel.scope import distributed
from tnt_notebook.parallel.session import Run, Session

__all__ = ["Model", "Run", "Session", "distributed"]
