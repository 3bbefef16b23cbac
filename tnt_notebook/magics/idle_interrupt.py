"""The notebook's interrupt while no cell runs: it then means the fit that goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tnt_notebook.cluster import Fit

_RESTART_S = 0.5  # by then a request follows the interrupt


def interrupt_reaches(shell: InteractiveShell, fit: Fit) -> None:
    """Makes an interrupt of the idle kernel one of this fit; to be called in a cell.

    A kernel ignores interrupts while no cell runs. What it is to do then, it keeps while one runs.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not hasattr(kernel, "saved_sigint_handler"):
        return  # no notebook: where a prompt waits, Ctrl-C belongs to the prompt

    def interrupt(*_: Any) -> None:
        later = threading.Timer(_RESTART_S, interrupt_unless_ending)
        later.daemon = True
        later.start()

    def interrupt_unless_ending() -> None:
        # Jupyter interrupts a kernel before it ends or restarts it, and the fit is to outlive that.
        if kernel._shutdown_message is None and fit.state in ("queued", "running"):
            fit.interrupt()

    kernel.saved_sigint_handler = interrupt
