"""What a person holds of work that goes on in a thread, a fit or a sweep, and can do with it."""

from __future__ import annotations

import threading
import time
from typing import Any

from IPython.core.getipython import get_ipython

from tnt_notebook.errors import TntError


class Handle:
    """Work that can be waited for, interrupted and shown again.

    Attributes:
        title: what it is called.
    """

    title: str
    _ended: threading.Event
    _aborted: bool  # a person has asked for that
    _view: Any  # with show_again()

    @property
    def error(self) -> TntError | None:
        """What went wrong, or None."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """What the notebook's interrupt does: stops it, and aborts it the second time."""
        raise NotImplementedError

    def _wait(self, timeout: float | None) -> None:
        """Until the end; an interrupt meanwhile is that of the work, until it is aborted.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds.
            TntError: :attr:`error`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended.is_set():
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._ended.wait(left):
                    raise TimeoutError(f"{self.title} still runs after {timeout:g} s.")
            except KeyboardInterrupt:
                if self._aborted:
                    raise  # it is being ended; who cannot wait for that may leave
                self.interrupt()
        if self.error is not None:
            raise self.error

    def _ipython_display_(self) -> None:
        """Shows the live view again, while it lives and where there is a notebook."""
        if self._ended.is_set() or getattr(get_ipython(), "kernel", None) is None:
            raise NotImplementedError  # IPython goes on with what follows
        self._view.show_again()
