"""Errors that tell a person of ranks that died, or that could not be freed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tnt_notebook.cluster.output import ranks_label
from tnt_notebook.errors import ClusterError, DeathError, RankError
from tnt_notebook.words import number

_LINES = 12
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
#: Neither code of a cell nor of a file of the user's.
_LIBRARY = re.compile(r'File "[^"]*(/site-packages/|/lib/python\d|/tnt_notebook/|<frozen )')


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
        why: in a few words; "" where that is not known.
        living: ranks that live on, with their variables.
        last_words: of the ranks, MPI, and the batch system.
    """
    hosts = ", ".join(sorted({seats[rank]["host"] for rank in ranks}))
    next_step = "%tnt_cluster restart starts the ranks anew; variables on them are lost."
    if living:
        live, they = number(len(living), "lives", "live"), number(len(living), "its", "their")
        other = number(len(ranks), "the other", "the others")
        next_step = (
            f"{ranks_label(living)} {live}, and so do {they} variables: the next cell runs there. "
            f"%tnt_cluster restart --missing starts {other} again, without --missing all ranks."
        )
    said = f"{ranks_label(ranks)} died on {hosts}{why and f': {why}'}. {next_step}"
    return DeathError(f"{said}\n\n{last_words}", list(ranks))


def stuck_error(raised: RankError, stacks: Mapping[int, str]) -> ClusterError:
    """The error of ranks that could not be freed, so that all were started again.

    Args:
        raised: what the others raised.
        stacks: what those have written of their threads, by rank.
    """
    where = [f"Rank {rank} was here:\n{_innermost_calls(stack)}" for rank, stack in stacks.items()]
    return ClusterError(
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
