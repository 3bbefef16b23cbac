"""The notebook's interrupt while no cell runs: it then means the fit that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tnt_notebook.cluster import Fit


def interrupt_reaches(shell: InteractiveShell, fit: Fit) -> None:
    """Makes an interrupt of the idle kernel one of this fit; to be called in a cell.

    A kernel ignores interrupts while no cell runs. What it is to do then, it keeps while one runs.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not hasattr(kernel, "saved_sigint_handler"):
        return  # no notebook: where a prompt waits, Ctrl-C belongs to the prompt

    def interrupt(*_: Any) -> None:
        if fit.state in ("queued", "running"):
            fit.interrupt()

    kernel.saved_sigint_handler = interrupt
