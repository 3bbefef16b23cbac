"""What the magics of a notebook share: its cluster, and the run that it began last."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError

from tnt_notebook.errors import NoClusterError
from tnt_notebook.jupyter import notebook
from tnt_notebook.magics.completion import TntCompletion

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell

    from tnt_notebook.cluster import Cluster, Fit, Sweep
    from tnt_notebook.protocol import Call

_TAKEN = {*dir(builtins), "In", "Out", "exit", "get_ipython", "quit"}
_LONGEST = 100  # folders of runs have it in their names
_RESTART_S = 0.5  # from an interrupt to the request that may follow it


class Session:
    """A notebook.

    Attributes:
        running: its cluster; None where it has none.
        last_run: the folder of the run that it began last.
        last_fit: the fit that it began last.
        closed: set when the cluster is stopped.
        magics: by kind and name, as the shell calls them.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.running: Cluster | None = None
        self.last_run: Path | None = None
        self.last_fit: Fit | None = None
        self.closed = threading.Event()
        self.magics: dict[str, dict[str, Callable[..., Any]]] = {"line": {}, "cell": {}}
        self.completion: TntCompletion | None = None
        self._fits: list[Fit | Sweep] = []  # of which there may be something to say

    @property
    def cluster(self) -> Cluster:
        """The running cluster.

        Raises:
            NoClusterError: there is none; the message says how to start one.
        """
        if self.running is None:
            raise NoClusterError("No cluster is running. Start one: %tnt_cluster start -n 4")
        return self.running

    @property
    def ranks(self) -> int:
        """How many ranks there are now."""
        return 0 if self.running is None else self.running.ranks

    def ask_at_once(self, function: Call, *arguments: Any) -> Any:
        """What a function of the first rank answers; None where there is none, or it is busy."""
        idle = self.running is not None and self.running.is_ours and self.running.queue.is_idle
        return self.running.ask(function, *arguments) if self.running and idle else None

    def close(self) -> None:
        """Stops the cluster if one runs."""
        self.closed.set()
        self.closed = threading.Event()
        cluster, self.running = self.running, None
        if cluster is not None:
            cluster.stop()

    def bind(self, name: str, value: Any) -> None:
        """Gives a variable of the notebook a value."""
        self.shell.push({name: value})

    def follow(self, fit: Fit | Sweep) -> None:
        """Makes a fit the notebook's, or a sweep: a variable, the last run, and what an interrupt
        means."""
        self.bind(fit.title, fit)
        self.last_run = getattr(fit, "folder", None)  # of a sweep each trial has one
        if self.last_run is not None:
            self.last_fit = cast("Fit", fit)
        self._fits.append(fit)
        _interrupt_reaches(fit)

    def tell_failures(self, info: ExecutionInfo) -> None:
        """Says, before a cell runs, which fits have failed in the background and nobody has looked
        at since. Says it once, and not of one that the cell replaces: there the next card will be.

        Args:
            info: of the cell.
        """
        going, replaced = [], _begun_by(info.raw_cell or "")
        for fit in self._fits:
            if fit.state in ("queued", "running"):
                going.append(fit)
            elif fit.title != replaced and (line := fit.unseen):
                print(line, file=sys.stderr)
        self._fits = going


def _begun_by(cell: str) -> str:
    """The variable of the fit or sweep that a cell begins; "" where it begins none."""
    magic = re.match(r"\s*%%tnt_(fit|sweep)\b(.*)", cell)
    if magic is None:
        return ""
    named = re.search(r"--name[ =]+(\S+)", magic[2])
    return named[1] if named else magic[1]


def check_name(name: str) -> None:
    """Refuses a name that no variable can have, or none should: the notebook needs it."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(f"--name {name}: a variable cannot have this name")
    if len(name) > _LONGEST:
        raise UsageError(f"--name {name[:20]}...: a name has at most {_LONGEST} characters")
    if name.startswith("_") or name in _TAKEN:
        raise UsageError(f"--name {name}: the notebook itself needs this name")


def _interrupt_reaches(fit: Fit | Sweep) -> None:
    """Makes an interrupt of the idle kernel one of this fit; to be called in a cell."""

    def interrupt(*_: Any) -> None:
        later = threading.Timer(_RESTART_S, interrupt_unless_ending)
        later.daemon = True
        later.start()

    def interrupt_unless_ending() -> None:
        # Jupyter interrupts a kernel before it ends or restarts it, and the fit is to outlive that.
        if not notebook.is_ending() and fit.state in ("queued", "running"):
            fit.interrupt()

    notebook.on_idle_interrupt(interrupt)
