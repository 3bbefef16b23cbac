"""Every kind of failure a person can meet, one class each.

Messages are sentences: what happened, on which rank, what to do.
"""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path
from types import TracebackType

#: Code that is no user's: installed, Python's, our own, or made by TensorFlow.
_LIBRARY = re.compile(
    r"/site-packages/|/lib/python\d|<frozen |<string>|__autograph_generated_file|"
    + re.escape(f"{Path(__file__).parent}/")
)


class TntError(Exception):
    """Base class of all errors raised on purpose by tnt_notebook."""

    #: Whether the other ranks know already: they raise as well, or raised first. Any other error
    #: on one rank has to free those that wait for it.
    peers_know = False

    def _render_traceback_(self) -> list[str]:
        # IPython's protocol, on ranks and in the notebook: the sentence says what to do, and of
        # the calls only the person's own matter.
        return [*_own_lines(self.__traceback__), f"{type(self).__name__}: {self}"]


class ClusterError(TntError):
    """Engines could not be started, reached or stopped."""


class DeathError(ClusterError):
    """Ranks have died, or their hosts, or the job they were of.

    Args:
        message: which, where, and what is known of it.
        ranks: which.
    """

    def __init__(self, message: str, ranks: list[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


class StuckError(ClusterError):
    """A rank did not take part within the time-out, and could not be freed: all were started
    anew."""


class NoClusterError(ClusterError):
    """A cell wants ranks, and no cluster is running."""


class RankError(TntError):
    """Code of a cell raised on one or more ranks.

    Args:
        message: one line that names the ranks and the error.
        rendered: lines that a notebook shows in place of a local traceback.
    """

    def __init__(self, message: str, rendered: list[str] | None = None) -> None:
        super().__init__(message)
        self.rendered = rendered

    def _render_traceback_(self) -> list[str]:
        # IPython's protocol: the ranks' tracebacks say more than the notebook's own frames.
        return [*(self.rendered or []), f"{type(self).__name__}: {self}"]


class UnreadableError(TntError):
    """Python cannot read a cell; nothing of it was sent.

    Args:
        message: what is wrong, as Python says it.
        place: lines that show where.
    """

    def __init__(self, message: str, place: list[str]) -> None:
        super().__init__(message)
        self.place = place

    def _render_traceback_(self) -> list[str]:
        return [*self.place, f"{self} (nothing was sent to the ranks)"]


class NoInputError(TntError):
    """A cell on a rank wants to read what a person types."""


class StalledError(RankError):
    """A rank did not take part in an operation within the time-out; all have been freed."""


class PeerError(TntError):
    """This rank was freed from a wait because another rank failed or left."""

    peers_know = True


class CommunicationError(TntError):
    """A collective could not complete: time-out, mismatch between ranks, transport failure."""


class RulesError(TntError):
    """The table that says which algorithm a collective uses is broken. Raised on all ranks."""

    peers_know = True


class ModelError(TntError):
    """The model cannot be trained distributed as it stands; the message says what to change."""


class ScheduleError(TntError):
    """A pipeline schedule is incomplete, out of order, or never ends."""


class DisagreementError(ModelError):
    """The ranks want to do different things. Raised on all of them."""

    peers_know = True


class NothingToDoError(ModelError):
    """A cell of ``%%tnt_fit`` called neither fit, evaluate nor predict. Raised on all ranks."""

    peers_know = True


class DataError(TntError):
    """The input cannot be shared between the ranks, or the ranks read different data."""


class TraceError(TntError):
    """A run that was kept cannot be found or read."""


class CheckpointError(TntError):
    """Checkpoints cannot be kept or read; the message says what to do. Where ranks have agreed on
    it, raised on all of them."""

    peers_know = True


class SuspendedError(TntError):
    """Training was left on request, with a checkpoint to go on from. Raised on all ranks."""

    peers_know = True


class StoppedError(TntError):
    """Somebody has asked for the end of training, between two steps of a loop of one's own. Raised
    on all ranks; a cell of ``%%tnt_fit`` ends with it as stopped."""

    peers_know = True


class DivergenceError(TntError):
    """Weights that must be identical on all ranks are not. Raised on all of them."""

    peers_know = True


def _own_lines(calls: TracebackType | None) -> list[str]:
    """Lines of cells, and of files of the user's, in which an error was raised."""
    found = []
    for frame, number in traceback.walk_tb(calls):
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        line = linecache.getline(path, number, frame.f_globals).strip()
        if not line or "get_ipython().run_" in line or _LIBRARY.search(path):
            continue  # IPython's own way of calling a magic
        in_file = Path(path).name if Path(path).exists() else "the cell"
        where = in_file if name == "<module>" else f"{name} in {in_file}"
        found.append(f"line {number} of {where}: {line}")
    return found


def brief(error: BaseException) -> str:
    """An error in one line: its class and what it says, without the frames some texts contain."""
    said = str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if inner := inner_error(said):
        return inner[:500]
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def inner_error(said: str) -> str | None:
    """Of an error whose text holds another one's whole traceback, as TensorFlow's of an error in
    Python code, the line that says that one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    inner = [line for line in lines if re.match(r"\w*(Error|Exception|Interrupt): ", line)]
    return inner[-1] if len(lines) > 1 and inner else None
