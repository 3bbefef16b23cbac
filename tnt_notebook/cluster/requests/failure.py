"""One error that a person can read: of ranks that raised, that died, or that could not be freed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipyparallel.error import RemoteError

from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.error_text import in_a_line, told
from tnt_notebook.errors import (
    ClusterError,
    DeathError,
    PeerError,
    RankError,
    StalledError,
    StuckError,
    TimedOutError,
)
from tnt_notebook.words import number

_TRACEBACKS = 3  # shown in full; of more different errors the first line
_LINES = 12  # of a rank's calls
_INTERRUPTED = KeyboardInterrupt.__name__
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
#: Neither code of a cell nor of a file of the user's.
_LIBRARY = re.compile(r'File "[^"]*(/site-packages/|/lib/python\d|/tnt_notebook/|<frozen )')


@dataclass(frozen=True)
class Failure:
    """What one rank raised, as text.

    Attributes:
        line: of a cell, or of a file of the user's, where that is known: see
            :func:`~tnt_notebook.error_text.source_line`.
    """

    ename: str
    evalue: str
    traceback: str
    line: str = ""

    @property
    def freed(self) -> bool:
        """This rank did not fail by itself: it was freed from waiting for one that did."""
        return self.ename == PeerError.__name__

    @property
    def whole(self) -> str:
        """What is said at the end of a traceback."""
        return f"{self.ename}: {self.evalue}"

    @property
    def calls(self) -> str:
        """The traceback, without the sentence that ends it: where it is one of ours."""
        return self.traceback.removesuffix(self.whole).rstrip()

    @property
    def told(self) -> str:
        """What a person is told of it, in paragraphs."""
        return told(self.ename, self.evalue)

    @property
    def summary(self) -> str:
        """One line."""
        return in_a_line(self.told)


def failure_of(error: BaseException) -> Failure:
    """The failure in an answer of ipyparallel."""
    if isinstance(error, RemoteError):
        return Failure(error.ename, error.evalue, (error.traceback or "").rstrip())
    return Failure(type(error).__name__, str(error), "")


def rank_error(failures: Mapping[int, Failure]) -> RankError:
    """One error for all ranks that failed: tracebacks of those that failed by themselves, and what
    is told of the first of them.

    Args:
        failures: by rank, at least one.
    """
    alike: dict[tuple[str, str], list[int]] = {}
    for rank in sorted(failures):
        if not failures[rank].freed:
            alike.setdefault((failures[rank].ename, failures[rank].told), []).append(rank)
    # Who was interrupted, since it did not end, has not failed first.
    alike = dict(sorted(alike.items(), key=lambda one: one[0][0] == _INTERRUPTED))
    freed = [rank for rank in sorted(failures) if failures[rank].freed]
    if not alike:  # all were freed, by a rank outside this cell
        alike = {(failures[freed[0]].ename, failures[freed[0]].told): freed}
        freed = []
    rendered: list[str] = []
    for i, ranks in enumerate(alike.values()):
        failure = failures[ranks[0]]
        if failure.calls and i < _TRACEBACKS:
            rendered += [f"{ranks_label(ranks)}:", *failure.calls.splitlines()]
        elif i > 0:
            rendered.append(f"{ranks_label(ranks)}: {failure.summary}")
    if freed:
        rendered.append(f"{ranks_label(freed)}: freed from waiting")
        for rank in freed:  # for whom it waited, where that may be the one to look at
            rendered += failures[rank].evalue.splitlines()[1:]
    first = next(iter(alike.values()))
    failure = failures[first[0]]
    # Where the traceback does not end with it, the message is all that a person gets.
    text = failure.summary if failure.calls == failure.traceback != "" else failure.whole
    who, besides = ranks_label(first), ""
    if len(alike) > 1:
        others = [rank for ranks in list(alike.values())[1:] for rank in ranks]
        besides = f" (and another error on {ranks_label(others)})"
    message = f"{who}: {text}{besides}"
    whole = "\n\n".join(filter(None, [f"{who}: {failure.told}{besides}", failure.line]))
    kinds = frozenset(failure.ename for failure in failures.values())
    # Interrupts alone are of a person, or of an error of another rank.
    timed_out = TimedOutError.__name__
    stalled = timed_out in kinds and kinds <= {timed_out, PeerError.__name__, _INTERRUPTED}
    return (StalledError if stalled else RankError)(message, rendered, whole, kinds)


def death_error(
    ranks: Sequence[int],
    seats: Sequence[Mapping[str, Any]],
    why: str,
    living: Sequence[int],
    last_words: str,
) -> DeathError:
    """The error of ranks that have died.

    Args:
        seats: of all ranks, with their ``host``.
        why: how or why, as it goes on the sentence; "" where that is not known.
        living: ranks that live on, with their variables.
        last_words: of the ranks, MPI, and the batch system.
    """
    hosts = ", ".join(sorted({seats[rank]["host"] for rank in ranks}))
    next_step = "%tnt_cluster restart starts the ranks anew; variables on them are lost."
    if living:
        live, they = number(len(living), "lives", "live"), number(len(living), "its", "their")
        dead = number(len(ranks), "the dead rank", "the dead ranks")
        next_step = (
            f"{ranks_label(living)} {live}, and so do {they} variables: the next cell runs there. "
            f"%tnt_cluster restart --missing restarts {dead}; without --missing, all."
        )
    said = f"{ranks_label(ranks)} died on {hosts}{why}. {next_step}"
    return DeathError(f"{said}\n\n{last_words}", list(ranks))


def stuck_error(raised: RankError, stacks: Mapping[int, str]) -> ClusterError:
    """The error of ranks that could not be freed, so that all were started again.

    Args:
        raised: what the others raised.
        stacks: what those have written of their threads, by rank.
    """
    where = [f"Rank {rank} was here:\n{_innermost_calls(stack)}" for rank, stack in stacks.items()]
    kind = StuckError if isinstance(raised, StalledError) else ClusterError
    return kind(
        f"{raised}\n{ranks_label(list(stacks))} did not end: in a call that cannot be interrupted. "
        "The engines were restarted: variables on all ranks are lost.\n\n"
        + "\n".join([*(raised.rendered or []), *where])
    )


def _innermost_calls(dump: str) -> str:
    """Where a rank is, from what faulthandler wrote: calls of one thread, innermost first.

    That is a thread beside the main one which runs code of the user's, as TensorFlow's when it
    reads input from Python; else the main thread, which is the last.
    """
    threads: list[list[str]] = []
    for line in dump.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and line.startswith("  File "):
            threads[-1].append(line)
    if not threads:
        return "(it did not say: it is stopped, or waits for a device or a file system)"
    users = [t for t in threads[:-1] if any(not _LIBRARY.search(line) for line in t)]
    return "\n".join([*users, threads[-1]][0][:_LINES])
