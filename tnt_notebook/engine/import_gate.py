"""Imports of cells, and forks, wait while another thread loads something large.

Python locks modules one by one. Of two threads that load the same packages each gets modules that
the other one has half loaded, and TensorFlow's need each other in all directions::

    a thread     tensorflow .......... tensorflow.data .......
    a cell               from tensorflow.keras import layers: there is no such thing yet

What was loaded before can be imported as ever, and so can what others than cells need. A forked
child would keep what is half there, and locks of a thread that it has not; one that becomes another
program at once, as a shell command does, need not wait.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any


def close(ended: threading.Event) -> Callable[[], None]:
    """Lets imports of cells and forks in the main thread wait for an event; an interrupt ends the
    wait. To be called in that thread, where it imports nothing.

    Returns:
        What has to be called before the event is set.
    """
    usual: Any = builtins.__import__
    usual_by_name: Any = importlib.import_module
    usual_fork = os.fork
    loaded = frozenset(sys.modules)

    def has(name: str, part: str) -> bool:
        """Whether what is imported from a module is there: it may be a module itself."""
        whole = f"{name}.{part}"
        there = part == "*" or hasattr(sys.modules[name], part)
        return whole in loaded or (whole not in sys.modules and there)

    def wait() -> None:
        if threading.current_thread() is threading.main_thread():
            ended.wait()

    def wait_for(name: str, parts: Sequence[str]) -> None:
        if name not in loaded or not all(has(name, part) for part in parts):
            wait()

    def import_(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        if level == 0 and globals is not None and globals.get("__name__") == "__main__":
            wait_for(name, fromlist or ())
        return usual(name, globals, locals, fromlist, level)

    def import_module(name: str, package: str | None = None) -> Any:
        if not name.startswith("."):  # as cells do it, and tnt_notebook for them
            wait_for(name, ())
        return usual_by_name(name, package)

    def fork() -> int:
        wait()
        return usual_fork()

    def open_again() -> None:
        # Unless somebody has put something else there since, which calls these.
        if builtins.__import__ is import_:
            builtins.__import__ = usual
        if importlib.import_module is import_module:
            importlib.import_module = usual_by_name
        if os.fork is fork:
            os.fork = usual_fork

    builtins.__import__ = import_  # type: ignore[assignment]
    importlib.import_module = import_module
    os.fork = fork
    return open_again
