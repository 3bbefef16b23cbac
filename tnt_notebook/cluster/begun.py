"""A note of the fit that was begun last, for a notebook that attaches while it goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tnt_notebook import files
from tnt_notebook.cluster.folder import RunFolder

_NAME = "fit.json"
_FAR = 32 << 20  # behind the end of a log; half of what is kept of it


@dataclass(frozen=True)
class Begun:
    """A fit that was begun.

    Attributes:
        title: what its view and its variable are called.
        run: the folder in which its frames are kept.
        options: of the fit.
        cell: what was run.
        on_failure, restarts: what happens when ranks die.
        logs: how long the log of each rank was before.
    """

    title: str
    run: str
    options: dict[str, Any]
    cell: str = ""
    on_failure: str = "stop"
    restarts: int = 0
    logs: tuple[int, ...] = ()


def note(folder: RunFolder, ranks: int, begun: Begun) -> None:
    """Keeps the note, instead of the one before, with the lengths of the logs now."""
    logs = tuple(_length(folder.rank_log(rank)) for rank in range(ranks))
    files.replace(folder.path / _NAME, asdict(replace(begun, logs=logs)))


def noted(folder: RunFolder) -> Begun | None:
    """The note; None where no fit was begun."""
    try:
        said = json.loads((folder.path / _NAME).read_bytes())
        begun = Begun(
            str(said["title"]),
            str(said["run"]),
            dict(said["options"]),
            str(said["cell"]),
            str(said["on_failure"]),
            int(said["restarts"]),
            tuple(map(int, said["logs"])),
        )
        return begun if all(0 <= length < 1 << 60 for length in begun.logs) else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


class Tails:
    """What ranks write into their logs from some place on, piece by piece.

    Args:
        offsets: of each rank where to begin; None: at the end.
        most: bytes that are read at a time; of more that is there already, the end.
    """

    def __init__(
        self, folder: RunFolder, offsets: Sequence[int | None], most: int = 1 << 18
    ) -> None:
        self._logs = [folder.rank_log(rank) for rank in range(len(offsets))]
        self._most = most
        lengths = [_length(log) for log in self._logs]
        self._at = [
            length if offset is None else max(offset, length - most)
            for offset, length in zip(offsets, lengths, strict=True)
        ]

    def new(self) -> list[tuple[int, str]]:
        """Of each rank that has written, the new text; complete lines only."""
        found = []
        for rank, log in enumerate(self._logs):
            try:
                with open(log, "rb") as file:
                    length = os.fstat(file.fileno()).st_size
                    if not length - _FAR <= self._at[rank] <= length:
                        # The front of a long log is cut away, so this could be gone.
                        self._at[rank] = max(0, length - self._most)
                    file.seek(self._at[rank])
                    text = file.read(self._most)
            except OSError:
                continue
            if b"\n" in text or len(text) < self._most:  # else it is one very long line
                text = text[: text.rfind(b"\n") + 1]
            if text:
                self._at[rank] += len(text)
                found.append((rank, text.decode(errors="replace")))
        return found


def _length(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
