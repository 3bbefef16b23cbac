"""Cells on a rank: what happens when one raises, and what the notebook asks between cells."""

from __future__ import annotations

import os
import platform
import random
import signal
import sys
import threading
import traceback
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn

import numpy as np
from ipyparallel.serialize import serialize_object
from IPython import get_ipython
from IPython.core.formatters import PlainTextFormatter

from tnt_notebook import arrays, comm, protocol
from tnt_notebook.engine.placement import gpu_count
from tnt_notebook.error_text import brief
from tnt_notebook.errors import NoInputError


def install(shell: Any) -> None:
    """Makes a cell that raises on this rank free the other ranks from their waits."""
    arrays.install()
    shell.events.register("post_run_cell", free_peers)
    shell.set_custom_exc((NameError,), _show_undefined)
    sys.breakpointhook = _no_debugger
    for magic in ("debug", "pdb"):
        shell.register_magic_function(_no_debugger, "line_cell", magic)
    shell.history_manager.outputs = _KeptNowhere()
    # A cell often ends in model.fit(...): what it gives should say more than an address, and the
    # same on all ranks, so that it is shown once.
    formatters = shell.display_formatter.formatters
    formatters["text/plain"] = _PlainText(parent=shell.display_formatter)


def begin_alike(shell: Any, seed: int) -> None:
    """Gives Python and NumPy a random state before the first cell, so that ranks which draw without
    a seed, as a split of data does, draw the same. Not earlier: what starts a rank draws, too."""

    def set_once(info: Any) -> None:
        shell.events.unregister("pre_run_cell", set_once)
        random.seed(seed)
        np.random.seed(seed)

    shell.events.register("pre_run_cell", set_once)


class _PlainText(PlainTextFormatter):
    """IPython's, which also knows a Keras History when a cell has loaded Keras."""

    def __call__(self, value: Any) -> Any:
        keras = sys.modules.get("keras")
        history = getattr(getattr(keras, "callbacks", None), "History", None)
        if history is not None:
            self.for_type(history, _print_history)
        return super().__call__(value)


class _KeptNowhere(dict[int, list[Any]]):
    """IPython keeps all that cells print, by their number, to export it as a notebook: nobody can
    ask a rank for that, and it would fill its memory."""

    def __missing__(self, cell: int) -> list[Any]:
        return []


def _show_undefined(
    shell: Any, kind: type, error: NameError, calls: TracebackType, tb_offset: int | None = None
) -> None:
    """IPython's hook for an error that leaves a cell: of a name that code of the cell wanted, the
    notebook may have it."""
    *_, (innermost, _) = traceback.walk_tb(calls)
    if error.name and innermost.f_globals is shell.user_global_ns:
        error.args = (
            f"{error}. Ranks have variables of their own: %tnt_push {error.name} copies one of "
            "the notebook to them",
        )
    shell.showtraceback((kind, error, calls), running_compiled_code=True)


def _no_debugger(*_: Any, **__: Any) -> NoReturn:
    """What ``breakpoint()`` is in cells, ``%debug`` and ``%pdb``."""
    raise NoInputError(
        "A rank has no keyboard, so it cannot be stopped in a debugger. In a cell without its "
        "first line (%%tnt, %%tnt_fit), which the notebook runs itself, breakpoint() and %debug "
        "work; on ranks, print what there is to see."
    )


def free_peers(result: Any) -> None:
    """Called after every cell: tells the other ranks when this one failed.

    Args:
        result: IPython's ExecutionResult; None when the cell was cancelled.
    """
    error = None if result is None else result.error_before_exec or result.error_in_exec
    # A rank that was itself freed has nothing to tell: the first failure is the one to name.
    if error is None or getattr(error, "peers_know", False):
        return
    comm.abort(f"rank {comm.rank()}: {brief(error)}")


def listen_for_free() -> None:
    """Begins to free this rank from waiting when the notebook says so, whatever its main thread
    does: a handler of Python runs between two instructions of that one, never while it is in a step
    of TensorFlow. So a thread takes the signal, which all threads of this process have blocked.
    """

    def listen() -> None:
        while True:
            signal.sigwait([protocol.FREE])
            comm.abort("it was interrupted")

    threading.Thread(target=listen, name="tnt-free", daemon=True).start()


def recover() -> list[int]:
    """Collective over all ranks that live: makes communication usable again after a failed cell.

    Returns:
        The seats of the ranks that live: who takes part from now on.
    """
    world = comm.world()
    world.recover()
    return list(world.seats)


def fill_seats() -> list[int]:
    """Starts an engine for each vacant seat, as this one was started. Collective over the ranks
    that live, after they have recovered; the engines register a moment later, with their seat as
    id.

    Returns:
        The seats that have a rank now.

    Raises:
        CommunicationError: ranks cannot be started.
    """
    world = comm.world()

    def command(seat: int) -> list[str]:
        neighbours = world.seats_beside(seat)
        return [
            *(sys.executable, "-m", protocol.ENGINE, *sys.argv[1:], f"--seat={seat}"),
            f"--local-rank={neighbours.index(seat)}",
            f"--local-size={len(neighbours)}",
        ]

    world.grow(command)
    return list(world.seats)


def describe() -> dict[str, Any]:
    """Who this rank is: rank and size as in the beginning, whoever may have died since; host, pid,
    cores, GPU (as CUDA_VISIBLE_DEVICES) and how many its host has, and how it reaches the others:
    its node, by what, why so, and with how many lanes.
    """
    world = comm.world()
    return {
        "rank": world.seats[world.rank], "size": len(world.seats) + len(world.lost),
        "host": platform.node(), "pid": os.getpid(), "cores": sorted(os.sched_getaffinity(0)),
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "gpus": gpu_count(),
        "node": world.node[world.rank], "link": _link(world), "links": world.links.describe(),
        "reason": world.links.reason, "lanes": world.lanes, "survives": comm.survives(),
    }  # fmt: skip


def _link(world: comm.World) -> str:
    """What this rank's own messages go by: ``shm``, ``mpi``, ``shm+gpi``, or nothing."""
    near = world.node.count(world.node[world.rank])
    ways = ["shm"] * (near > 1) + [world.links.network] * (near < world.size)
    return "+".join(ways)


def push(values: dict[str, Any]) -> None:
    """Binds names in the namespace of this rank's cells."""
    get_ipython().push(values)


def fetch(name: str) -> dict[str, Any]:
    """The value a name has in this rank's cells.

    Returns:
        ``{"value": buffers}``, for :func:`ipyparallel.serialize.deserialize_object`, or
        ``{"refused": why}`` when the name is not defined or its value cannot be sent.
    """
    namespace = get_ipython().user_ns
    if name not in namespace:
        return {"refused": f"{name!r} is not defined in the cells of this rank."}
    value, kind = namespace[name], type(namespace[name])
    if kind.__name__ == "History" and kind.__module__.startswith("keras."):
        # Without its model, which would make the notebook load TensorFlow.
        value = SimpleNamespace(history=value.history, epoch=value.epoch, params=value.params)
    try:
        return {"value": [bytes(buffer) for buffer in serialize_object(value)]}
    except Exception as error:  # whatever __reduce__ of a stranger raises
        return {
            "refused": f"{name!r} is of type {type(value).__name__}, which cannot be sent to the "
            f"notebook ({type(error).__name__}: {error}). Pull plain data: numbers, lists, "
            "dicts, arrays."
        }


def _short(value: Any) -> str:
    """A number, or those of a metric that has several."""
    return (
        f"{value:.4g}" if np.ndim(value) == 0 else np.array2string(np.asarray(value), precision=4)
    )


def _print_history(history: Any, printer: Any, cycle: bool) -> None:
    """IPython's pretty printer of a Keras History: its epochs and last values."""
    values = ", ".join(f"{name} {_short(v[-1])}" for name, v in history.history.items() if v)
    epochs = len(history.epoch)
    printer.text(f"<History of {epochs} epoch{'s' * (epochs != 1)}: {values}>")
