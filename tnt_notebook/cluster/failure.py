"""Turns the errors of several ranks into one that a person can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ipyparallel.error import RemoteError

from tnt_notebook.cluster.output import ranks_label
from tnt_notebook.errors import RankError

_TRACEBACKS = 3  # shown in full; of more different errors the first line


@dataclass(frozen=True)
class Failure:
    """What one rank raised, as text."""

    ename: str
    evalue: str
    traceback: str

    @property
    def freed(self) -> bool:
        """This rank did not fail by itself: it was freed from waiting for one that did."""
        return self.ename == "PeerError"

    @property
    def summary(self) -> str:
        """One line."""
        first, *more = self.evalue.splitlines() or [""]
        return f"{self.ename}: {first}{' ...' if more else ''}"


def failure_of(error: BaseException) -> Failure:
    """The failure in an answer of ipyparallel."""
    if isinstance(error, RemoteError):
        return Failure(error.ename, error.evalue, (error.traceback or "").rstrip())
    return Failure(type(error).__name__, str(error), "")


def rank_error(failures: Mapping[int, Failure]) -> RankError:
    """One error for all ranks that failed: tracebacks of those that failed by themselves.

    Args:
        failures: by rank, at least one.
    """
    alike: dict[tuple[str, str], list[int]] = {}
    for rank in sorted(failures):
        if not failures[rank].freed:
            alike.setdefault((failures[rank].ename, failures[rank].evalue), []).append(rank)
    freed = [rank for rank in sorted(failures) if failures[rank].freed]
    if not alike:  # all were freed, by a rank outside this cell
        alike = {(failures[freed[0]].ename, failures[freed[0]].evalue): freed}
        freed = []
    rendered: list[str] = []
    for i, ranks in enumerate(alike.values()):
        failure = failures[ranks[0]]
        if failure.traceback and i < _TRACEBACKS:
            rendered += [f"{ranks_label(ranks)}:", *failure.traceback.splitlines()]
        elif i > 0:
            rendered.append(f"{ranks_label(ranks)}: {failure.summary}")
    if freed:
        rendered.append(f"{ranks_label(freed)}: freed from waiting")
        for rank in freed:  # for whom it waited, where that may be the one to look at
            rendered += failures[rank].evalue.splitlines()[1:]
    first = next(iter(alike.values()))
    failure = failures[first[0]]
    # Where there is no traceback to show, the message is all that a person gets.
    text = failure.summary if failure.traceback else f"{failure.ename}: {failure.evalue}"
    message = f"{ranks_label(first)}: {text}"
    if len(alike) > 1:
        others = [rank for ranks in list(alike.values())[1:] for rank in ranks]
        message += f" (and another error on {ranks_label(others)})"
    return RankError(message, rendered)
