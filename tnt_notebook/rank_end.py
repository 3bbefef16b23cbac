"""How the log of a rank tells of its end: written by the process above it, read by the notebook."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tnt_notebook.words import number

_ENDED = re.compile(r"^The process of this rank, (\d+), has ended on \S+: (.+?)\.(.*)$", re.M)


@dataclass(frozen=True)
class RankEnd:
    """The end of one process of a rank.

    Attributes:
        how: its exit status, or the signal that has killed it.
        no_memory: whether Linux killed processes beside it for lack of memory just then.
    """

    pid: int
    how: str
    no_memory: bool

    @property
    def said(self) -> str:
        """How it ended, in words; for an unexplained signal, the usual cause."""
        if self.how != "SIGKILL":
            return self.how
        return "SIGKILL, signal 9" + ("" if self.no_memory else ": often out of memory")


def written(pid: int, host: str, how: str, killed: int) -> str:
    """The line of a log.

    Args:
        killed: how many processes Linux killed for lack of memory just then.
    """
    memory = f" {killed} {number(killed, 'was', 'were')} killed there for lack of memory just then."
    return f"The process of this rank, {pid}, has ended on {host}: {how}.{memory * (killed > 0)}"


def ends(log: str) -> list[RankEnd]:
    """All that a log tells of; a rank that was started again has had several processes."""
    return [RankEnd(int(pid), how, bool(memory)) for pid, how, memory in _ENDED.findall(log)]
