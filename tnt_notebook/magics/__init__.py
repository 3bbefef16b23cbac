"""What a person types in the notebook: parsing and messages only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["register", "unregister"]

_KINDS = ("ClusterMagic", "CellMagics", "FitMagic", "PlanMagic", "BenchMagic", "TraceMagic")


def register(shell: InteractiveShell) -> None:
    """Adds the magics and their completion to a shell; imports nothing heavy."""
    from tnt_notebook.magics.bench_magic import BenchMagic
    from tnt_notebook.magics.cell_magics import CellMagics
    from tnt_notebook.magics.cluster_magic import ClusterMagic
    from tnt_notebook.magics.completion import TntCompletion
    from tnt_notebook.magics.fit_magic import FitMagic
    from tnt_notebook.magics.plan_magic import PlanMagic
    from tnt_notebook.magics.session import Session
    from tnt_notebook.magics.trace_magic import TraceMagic

    session = Session(shell)
    kinds = (ClusterMagic, CellMagics, FitMagic, PlanMagic, BenchMagic, TraceMagic)
    magics = [kind(session) for kind in kinds]
    shell.register_magics(*magics)
    session.completion = TntCompletion(shell, magics)
    session.completion.install()


def unregister(shell: InteractiveShell) -> None:
    """Stops the cluster, and removes the magics and their completion."""
    found = [shell.magics_manager.registry.pop(kind, None) for kind in _KINDS]
    for magics in filter(None, found):
        for kind, names in magics.magics.items():
            for name in names:
                shell.magics_manager.magics[kind].pop(name, None)
    if found[0] is not None:
        found[0].session.completion.remove()
        found[0].session.close()
