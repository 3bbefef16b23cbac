"""Frees this rank from waiting when the notebook says so, whatever its main thread does.

A handler of Python runs between two instructions of the main thread: never, while that one is in a
step of TensorFlow. So a thread of its own takes the signal.
"""

from __future__ import annotations

import signal
import threading

from tnt_notebook import comm, protocol


def listen() -> None:
    """Begins to listen for the signal, which all threads of this process have blocked."""
    threading.Thread(target=_wait, name="tnt-free", daemon=True).start()


def _wait() -> None:
    while True:
        signal.sigwait([protocol.FREE])
        comm.abort("it was interrupted")
