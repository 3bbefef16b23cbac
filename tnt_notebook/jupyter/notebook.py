"""The notebook's own kernel: whether there is one, what it is asked to do, and how it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.getipython import get_ipython


def kernel() -> Any:
    """The kernel that this process is; None in a script or at a prompt."""
    return getattr(get_ipython(), "kernel", None)


def is_ending() -> bool:
    """Whether the kernel was asked to end or to restart."""
    return _shutdown() is not None


def is_restarting() -> bool:
    """Whether the kernel was asked to restart."""
    return bool((_shutdown() or {}).get("restart"))


def on_idle_interrupt(interrupt: Callable[..., None]) -> None:
    """Has `interrupt` called when the kernel is interrupted while no cell runs, where it would
    ignore that; to be called in a cell, since a kernel keeps meanwhile what it is to do then.

    Nothing happens where no kernel is: at a prompt, Ctrl-C belongs to the prompt.
    """
    if hasattr(here := kernel(), "saved_sigint_handler"):
        here.saved_sigint_handler = interrupt


def answer_in_named_subshell(comm: Any) -> None:
    """Has what the browser sends to a widget handled by the subshell that it names, so that a
    button works while a cell blocks the kernel. ipykernel 7.4 would rather take the subshell of
    whatever message came last when the widget was drawn: the blocked one, or one that is gone.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, named: named


def last_traceback() -> list[str]:
    """Of what the last cell of this process has raised, in lines."""
    shell: Any = get_ipython()
    return [*(shell._last_traceback or [])]


def _shutdown() -> dict[str, Any] | None:
    message = getattr(kernel(), "_shutdown_message", None)
    return None if message is None else message["content"]
