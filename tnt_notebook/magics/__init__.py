"""What a person types in the notebook: parsing and messages only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["register", "unregister"]


def register(shell: InteractiveShell) -> None:
    """Adds the magics and their completion to a shell; imports nothing heavy."""
    from tnt_notebook.magics.tnt import TntMagics

    magics = TntMagics(shell)
    shell.register_magics(magics)
    magics.completion.install()


def unregister(shell: InteractiveShell) -> None:
    """Stops the cluster, and removes the magics and their completion."""
    from tnt_notebook.magics.tnt import TntMagics

    magics = shell.magics_manager.registry.pop(TntMagics.__name__, None)
    if magics is None:
        return
    magics.close()
    magics.completion.remove()
    for kind, names in magics.magics.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
