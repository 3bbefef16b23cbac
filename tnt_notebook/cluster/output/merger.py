"""Merges what several ranks print into one stream, in rank order, identical lines once.

Every rank's output is a sequence of items: complete lines, and rich outputs in their place. Item
``k`` of all ranks is printed together::

    rank 0   epoch 1     loss 0.5     done          printed
    rank 1   epoch 1     loss 0.7     done          ranks 0-1: epoch 1
             item 0      item 1       item 2        rank 0: loss 0.5
                                                    rank 1: loss 0.7
                                                    ranks 0-1: done

It waits for slower ranks, but not longer than ``hold_s``. What comes out is never more than what
went in, plus a label per line. This file is pure: it knows no clock and prints nothing.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tnt_notebook.cluster.output.banner import is_banner

HOLD_S = 0.5


@dataclass(frozen=True)
class Item:
    """One line (``kind`` is "stdout" or "stderr"), or one rich output ("display", "update" of one
    that was displayed), or a "clear".

    ``content`` is the line without its end, or the MIME bundle ``{"data": ..., "metadata": ...}``,
    or whether to clear only when something follows. ``display_id`` may differ where ranks display
    the same.
    """

    kind: str
    content: Any
    display_id: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Group:
    """An item, and the ranks that produced it."""

    ranks: tuple[int, ...]
    item: Item  # of the first of them


@dataclass
class _Rank:
    waiting: deque[tuple[float, Item]] = field(default_factory=deque)
    index: int = 0  # of the first waiting item
    partial: dict[str, str] = field(default_factory=dict)  # unfinished line by kind
    ended: bool = False


class Merger:
    """Takes output of ranks as it comes, gives groups as they become printable."""

    def __init__(self, ranks: Iterable[int], hold_s: float = HOLD_S) -> None:
        self._ranks = {rank: _Rank() for rank in sorted(ranks)}
        self._hold_s = hold_s

    def write(self, rank: int, kind: str, text: str, now: float) -> None:
        """Takes a piece of a text stream; it need not end with a line.

        A carriage return goes back to the line's begin, as on a terminal: of a progress bar that
        rewrites its line a thousand times, one line remains. TensorFlow's banner is left out.
        """
        state = self._ranks[rank]
        *lines, partial = (state.partial.get(kind, "") + text).split("\n")
        for line in map(_as_seen, lines):
            if not is_banner(line):
                state.waiting.append((now, Item(kind, line)))
        state.partial[kind] = _without_overwritten(partial)

    def put(self, rank: int, item: Item, now: float) -> None:
        """Takes a rich output; unfinished lines before it are finished first."""
        self._finish_lines(rank, now)
        self._ranks[rank].waiting.append((now, item))

    def end(self, rank: int, now: float) -> None:
        """No more output comes from this rank."""
        self._finish_lines(rank, now)
        self._ranks[rank].ended = True

    def ready(self, now: float) -> Iterator[Group]:
        """Groups that can be printed at time ``now`` (seconds, any origin)."""
        while waiting := [state.index for state in self._ranks.values() if state.waiting]:
            index = min(waiting)
            holders = [
                (rank, state)
                for rank, state in self._ranks.items()
                if state.waiting and state.index == index
            ]
            awaited = any(
                not state.ended and not state.waiting and state.index <= index
                for state in self._ranks.values()
            )
            oldest = min(state.waiting[0][0] for _, state in holders)
            if awaited and now - oldest < self._hold_s:
                return
            items = []
            for rank, state in holders:
                items.append((rank, state.waiting.popleft()[1]))
                state.index += 1
            for _, equal in itertools.groupby(items, key=lambda pair: pair[1]):
                ranks, alike = zip(*equal, strict=True)
                yield Group(ranks, alike[0])

    def rest(self, now: float) -> Iterator[Group]:
        """Everything that is left, once no rank prints any more."""
        for rank, state in self._ranks.items():
            if not state.ended:
                self.end(rank, now)
        return self.ready(now)

    def _finish_lines(self, rank: int, now: float) -> None:
        state = self._ranks[rank]
        for kind, partial in state.partial.items():
            if line := _as_seen(partial):
                state.waiting.append((now, Item(kind, line)))
        state.partial.clear()


def ranks_label(ranks: Iterable[int]) -> str:
    """Names ranks as a person would: "rank 2", "ranks 0-3", "ranks 0,2-3"."""
    ranks = sorted(ranks)
    runs = []
    for _, run in itertools.groupby(enumerate(ranks), key=lambda pair: pair[1] - pair[0]):
        first, *rest = [rank for _, rank in run]
        runs.append(f"{first}-{rest[-1]}" if rest else str(first))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {','.join(runs)}"


def _as_seen(line: str) -> str:
    return _without_overwritten(line.rstrip("\r")).replace("\b", "")


def _without_overwritten(line: str) -> str:
    """The part of an unfinished line that can still be seen, or be returned to."""
    text = line.rstrip("\r")
    pending_return = "\r" if len(text) < len(line) else ""
    return text[text.rfind("\r") + 1 :] + pending_return
