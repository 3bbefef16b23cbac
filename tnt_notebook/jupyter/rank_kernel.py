"""The kernel of a rank: cells that await, that print much, and that would read from a keyboard.

A cell with ``await`` runs in the kernel's own event loop, as in a notebook: what it has created
goes on between cells. The cell of a fit cannot, since the loop waits for its answer: it has a loop
of its own.
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import getpass
import signal
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, NoReturn

from ipykernel import zmqshell
from ipyparallel.engine import app
from ipyparallel.engine.kernel import IPythonParallelKernel
from IPython.utils.process import system  # type: ignore[attr-defined]
from traitlets import Type

from tnt_notebook.errors import NoInputError
from tnt_notebook.jupyter.interrupts import lose_none, postponed
from tnt_notebook.jupyter.outlet import Outlet, shortened


class _NoSubshells:
    """ipykernel asks its thread of subshells from where cells are interrupted; an engine has none,
    and the cell would be lost."""

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


@dataclass
class _Interrupts:
    """Those of a request, whose code has these globals."""

    globals: Mapping[str, Any]
    came: bool = False
    cancelled: bool = False  # the cell, where it waited
    postponed: bool = False  # the last one

    def hides_behind(self, error: str | None) -> bool:
        """Whether a request that failed with `error` was in fact interrupted."""
        return error is not None and (
            self.postponed or (self.cancelled and error == asyncio.CancelledError.__name__)
        )

    def raise_at(self, frame: FrameType | None) -> None:
        # Once one has ended the request's own code, another would only end what tells of that.
        if self.came and not self._own(frame):
            return
        self.came, self.postponed = True, postponed(frame)
        if not self.postponed:
            raise KeyboardInterrupt

    def _own(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_globals is not self.globals:
            frame = frame.f_back
        return frame is not None


class RankShell(zmqshell.ZMQInteractiveShell):
    """ipykernel's, which shows at once where a call was interrupted."""

    def showtraceback(self, exc_tuple: Any = None, *said: Any, **how: Any) -> None:
        """IPython's reads the source of every frame, TensorFlow's too: seconds while threads of an
        input compute. It is for cells; a call is our code, and its sentence is what is shown."""
        kind, error, calls = sys.exc_info()
        call = IPythonParallelKernel.do_apply.__code__
        if exc_tuple is None and calls is not None and calls.tb_frame.f_code is call:
            lines = "".join(traceback.format_exception(error)).splitlines()
            self._showtraceback(kind, error, lines)
        else:
            super().showtraceback(exc_tuple, *said, **how)


class RankKernel(IPythonParallelKernel):
    """ipyparallel's, which awaits, is interrupted while it does, says what it does not show of what
    cells print, and has no keyboard.

    Attributes:
        ranks: of the world.
    """

    ranks: ClassVar[int]
    shell_class = Type(RankShell)
    shell_channel_thread = _NoSubshells()
    _supports_kernel_subshells = False
    _interruptible = False

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        # In threads and fits, too: there ipykernel would leave Python's own.
        builtins.input = self.raw_input  # type: ignore[assignment]
        getpass.getpass = self.getpass
        zmqshell.system = _run_without_input  # type: ignore[attr-defined]
        self._outlet = Outlet(self.session, self.ranks)

    async def do_execute(self, *said: Any, **how: Any) -> dict[str, Any]:
        """Runs a cell; where a wait of it was interrupted, that is what it raises."""
        with self._bounded_output():
            try:
                self._interruptible = True
                reply = await super().do_execute(*said, **how)
                self._interruptible = False
            except KeyboardInterrupt:
                reply = self._interrupted()
        return _short(self._unmasked(reply))

    def do_apply(self, *said: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Calls a function."""
        with self._bounded_output():
            try:
                self._interruptible = True
                reply, result = super().do_apply(*said)
                self._interruptible = False
            except KeyboardInterrupt:
                reply, result = self._interrupted(), []
        return _short(self._unmasked(reply)), result

    def pre_handler_hook(self) -> None:
        """Called before each request. ipykernel lets an interrupt raise wherever that is: where a
        cell has ended, and its traceback is being sent, nobody would answer the notebook."""
        self._interrupts = _Interrupts(self.shell.user_global_ns)
        self.saved_sigint_handler = signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self._interruptible:
            self._interrupts.raise_at(frame)

    def _interrupted(self) -> dict[str, Any]:
        """The reply of what was interrupted after its own code had ended, as in its traceback."""
        self._interruptible = False
        reply = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
        return reply | {"engine_info": self.get_engine_info()}

    def _unmasked(self, reply: dict[str, Any]) -> dict[str, Any]:
        if not self._interrupts.hides_behind(reply.get("ename")):
            return reply
        lines = reply["traceback"][:-1]
        return reply | {"ename": "KeyboardInterrupt", "evalue": "", "traceback": lines}

    @contextmanager
    def _bounded_output(self) -> Iterator[None]:
        self._outlet.begin()
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            topic = self._topic("stream")
            self._outlet.end(self.iopub_socket, parent=self.get_parent("shell"), ident=topic)

    @contextmanager
    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Iterator[None]:
        """ipykernel's would let code between two waits go on to its end."""
        with _interrupting(future, self._interrupts):
            yield

    def raw_input(self, prompt: str = "") -> NoReturn:
        """What ``input`` is in cells."""
        raise NoInputError(
            "A rank has no keyboard to read from. Ask in a cell of the notebook, and send the "
            "answer: answer = input(), then %tnt_push answer"
        )

    def getpass(self, prompt: str = "", stream: Any = None) -> NoReturn:
        """What ``getpass.getpass`` is in cells."""
        self.raw_input()


def install(ranks: int) -> None:
    """Makes this the kernel of the engine that is to be started, in a world of so many ranks."""
    lose_none()
    app.Kernel = type(RankKernel.__name__, (RankKernel,), {"ranks": ranks})


def run_cell(shell: Any, cell: str) -> Any:
    """Runs a cell to its end within a call of the running loop: where it awaits, in a loop of its
    own. What it has created and left running there is cancelled.

    Returns:
        IPython's ExecutionResult.
    """
    before, shell.loop_runner = shell.loop_runner, functools.partial(_run_to_end, shell)
    try:
        return shell.run_cell(cell, store_history=False)
    finally:
        shell.loop_runner = before


def _run_to_end(shell: Any, cell: Coroutine[Any, Any, Any]) -> Any:
    outer, caller = asyncio.get_running_loop(), asyncio.current_task()
    # What loops and tasks say as they pause: "Extending asyncio" in Python's documentation.
    if caller is not None:
        asyncio.tasks._leave_task(outer, caller)
    asyncio._set_running_loop(None)
    try:
        with asyncio.Runner() as runner:
            task = runner.get_loop().create_task(cell)
            with _interrupting(task, found := _Interrupts(shell.user_global_ns)):
                result = runner.get_loop().run_until_complete(task)
    finally:
        asyncio._set_running_loop(outer)
        if caller is not None:
            asyncio.tasks._enter_task(outer, caller)
    error = result.error_in_exec
    if found.hides_behind(None if error is None else type(error).__name__):
        result.error_in_exec = KeyboardInterrupt()
        shell._last_traceback.pop()
    return result


@contextmanager
def _interrupting(cell: asyncio.Future[Any], found: _Interrupts) -> Iterator[None]:
    """Inside, an interrupt raises where the cell's code is, and cancels it where it waits."""
    loop = cell.get_loop()

    def interrupt(signum: int, frame: FrameType | None) -> None:
        if asyncio.current_task(loop) is cell:
            found.raise_at(frame)
        else:
            found.cancelled = True
            loop.call_soon_threadsafe(cell.cancel)  # it may be in a wait of the system

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _short(reply: dict[str, Any]) -> dict[str, Any]:
    if "ename" not in reply:
        return reply
    lines = [shortened(line) for line in reply["traceback"]]
    return reply | {"evalue": shortened(reply["evalue"]), "traceback": lines}


def _run_without_input(cmd: str) -> int:
    """``!cmd``: in a terminal of its own, where nobody would ever type an end of input."""
    return system(f"exec </dev/null\n{cmd}")
