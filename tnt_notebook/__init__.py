"""tnt_notebook: a Jupyter notebook as the front end of a supercomputer for Keras.

In a notebook::

    %load_ext tnt_notebook
    %tnt_cluster start -n 4

In a script started with ``mpiexec``::

    import tnt_notebook as tnt
    model = tnt.Model(model)
    model.fit(...)

Importing this package loads neither TensorFlow nor MPI; the names below do, when first used, but
for `Trace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Checkpoint", "Cut", "Mesh", "Model", "Pipeline", "Split", "Trace", "Way", "combine", "data",
    "distributed", "graph", "keras", "lazy", "load_ipython_extension", "ops", "row_wise", "rule",
    "unload_ipython_extension", "world",
]  # fmt: skip

if TYPE_CHECKING:
    from tnt_notebook import keras
    from tnt_notebook.comm import world
    from tnt_notebook.dashboard.reports.trace import Trace
    from tnt_notebook.keras.lazy_variables import lazy
    from tnt_notebook.parallel import graph, ops
    from tnt_notebook.parallel.checkpoint.config import Checkpoint
    from tnt_notebook.parallel.data import readers as data
    from tnt_notebook.parallel.data.row_wise import row_wise
    from tnt_notebook.parallel.layers.rule import Cut, Way, rule
    from tnt_notebook.parallel.step.combine import combine
    from tnt_notebook.parallel.training.model import Model
    from tnt_notebook.parallel.training.scope import distributed
    from tnt_notebook.plan import Mesh, Pipeline, Split

_HOME = {
    "Checkpoint": "parallel.checkpoint.config",
    "Cut": "parallel.layers.rule",
    "Mesh": "plan",
    "Model": "parallel.training.model",
    "Pipeline": "plan",
    "Split": "plan",
    "Trace": "dashboard.reports.trace",
    "Way": "parallel.layers.rule",
    "combine": "parallel.step.combine",
    "distributed": "parallel.training.scope",
    "lazy": "keras.lazy_variables",
    "row_wise": "parallel.data.row_wise",
    "rule": "parallel.layers.rule",
    "world": "comm",
}
_MODULES = {
    "data": "parallel.data.readers",
    "graph": "parallel.graph",
    "keras": "keras",
    "ops": "parallel.ops",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext tnt_notebook``: registers the magics."""
    from tnt_notebook.magics import register

    register(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext tnt_notebook``: stops the cluster and removes the magics."""
    from tnt_notebook.magics import unregister

    unregister(shell)
