"""Engine side: Keras models that train on all ranks.

Two ways in: ``with distributed(): model.fit(...)``, which ``%%tnt_fit`` puts around a cell, and
``Model(model).fit(...)`` for scripts.
"""

from __future__ import annotations

from tnt_notebook.parallel.model import Model
from tnt_notebook.parallel.run import Run
from tnt_notebook.parallel.session import Session, distributed
from tnt_notebook.parallel.stop import request_stop

__all__ = ["Model", "Run", "Session", "distributed", "request_stop"]
