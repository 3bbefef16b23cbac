"""What a person holds of work that goes on in a thread, a fit or a sweep, and can do with it."""

from __future__ import annotations

import contextvars
import threading
import time
from abc import ABC, abstractmethod
from html import escape
from typing import Any, Literal, Self

from tnt_notebook.errors import DeathError, EndedError, RankError, TntError
from tnt_notebook.jupyter import notebook
from tnt_notebook.telemetry import State


class Handle(ABC):
    """Work that can be waited for, interrupted and shown again: queued, then running, then
    finished, stopped (by a person; with an error where that was raised for it, or its ranks were
    stopped) or failed.

    Attributes:
        title: what it is called.
        state: ``queued``, ``running``, ``finished``, ``stopped`` or ``failed``.
    """

    _view: Any  # with show_again()

    def __init__(self, title: str) -> None:
        self.title = title
        self.state: Literal["queued", State] = "queued"
        self._error: TntError | None = None
        self._is_seen = False  # whether a person has looked at the error
        self._aborted = False  # a person has asked for that
        self._ended = threading.Event()

    @property
    def error(self) -> TntError | None:
        """What went wrong, or None."""
        self._is_seen = self._is_seen or self._error is not None
        return self._error

    @property
    def unseen(self) -> str:
        """That it failed, in a line, until somebody asks for its error or its end, or looks at the
        handle; else nothing."""
        if self.state != "failed" or self._is_seen or self._error is None:
            return ""
        title, first = self.title, str(self._error).partition("\n")[0]
        return f"{title} has failed: {first} (its card says where, {title}.wait() raises it)"

    @abstractmethod
    def stop(self) -> None:
        """Ends it after the current step; returns at once."""

    @abstractmethod
    def abort(self) -> None:
        """Ends it wherever the ranks are; returns at once."""

    def interrupt(self) -> None:
        """What the notebook's interrupt does: stops it, and aborts it the second time."""
        if not self._is_to_end:
            print(f"stopping {self.title} after the current step (interrupt again to abort it)")
            self.stop()
        else:
            print(f"aborting {self.title}")
            self.abort()

    def wait(self, timeout: float | None = None) -> Self:
        """Waits for the end. Ctrl-C, or the notebook's interrupt, stops what runs after its current
        step; a second one aborts it.

        Raises:
            TimeoutError: it still runs after ``timeout`` seconds.
            RankError, ClusterError, ModelError: it failed, or was aborted.
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
        return self

    def __repr__(self) -> str:
        return f"<{self.title}: {self._said()}>"

    def _repr_html_(self) -> str:
        return f"<code>{escape(self.title)}</code>: {escape(self._said())}"

    @property
    @abstractmethod
    def _is_to_end(self) -> bool:
        """Whether it has been asked to stop."""

    @abstractmethod
    def _said(self) -> str:
        """How far it is, in a line."""

    # In its own thread ------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begins the work. In this cell's context: what ranks print belongs under it, not under the
        one that runs when they print it."""
        context, name = contextvars.copy_context(), f"tnt-{self.title}"
        threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True).start()

    def _run(self) -> None:
        state: State = "failed"
        try:
            state = self._work()
        except TntError as error:
            self._error = error
            # A person has wanted this end, whatever the ranks raised for it.
            wanted = self._is_wanted() and not isinstance(error, DeathError)
            state = "stopped" if wanted or isinstance(error, EndedError) else "failed"
        except BaseException as error:
            # A fault of ours must reach the person as well, not end in a thread's last words.
            self._error = RankError(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.state = state
            self._conclude(state)
            self._ended.set()

    @abstractmethod
    def _work(self) -> State:
        """Does it; gives ``finished`` or ``stopped``."""

    def _is_wanted(self) -> bool:
        """Whether a person has asked for the end, so that an error is none."""
        return self._aborted

    @abstractmethod
    def _conclude(self, state: State) -> None:
        """Tells of the end, whatever it was."""

    # ------------------------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        """Shows the live view again, while it lives and where there is a notebook."""
        if self._ended.is_set() or notebook.kernel() is None:
            raise NotImplementedError  # IPython goes on with what follows
        self._view.show_again()
