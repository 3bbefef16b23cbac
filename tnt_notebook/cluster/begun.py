"""A note of the fit that was begun last, for a notebook that attaches while it goes on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tnt_notebook.cluster.folder import RunFolder

_NAME = "fit.json"


@dataclass(frozen=True)
class Begun:
    """A fit that was begun.

    Attributes:
        title: what its view and its variable are called.
        run: the folder in which its frames are kept.
        options: of the fit.
        logs: how long the log of each rank was before.
    """

    title: str
    run: str
    options: dict[str, Any]
    logs: tuple[int, ...]


def note(folder: RunFolder, title: str, run: Path, options: dict[str, Any], ranks: int) -> None:
    """Keeps the note, instead of the one before."""
    logs = tuple(_length(folder.rank_log(rank)) for rank in range(ranks))
    path = folder.path / _NAME
    beside = path.with_suffix(".new")
    with open(beside, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(asdict(Begun(title, str(run), options, logs)), file, default=str)
    os.replace(beside, path)


def noted(folder: RunFolder) -> Begun | None:
    """The note; None where no fit was begun."""
    try:
        said = json.loads((folder.path / _NAME).read_bytes())
        begun = Begun(
            str(said["title"]),
            str(said["run"]),
            dict(said["options"]),
            tuple(map(int, said["logs"])),
        )
        return begun if all(0 <= length < 1 << 60 for length in begun.logs) else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


class Tails:
    """What ranks have written into their logs since then, piece by piece."""

    def __init__(self, folder: RunFolder, offsets: tuple[int, ...], most: int = 1 << 18) -> None:
        self._logs = [folder.rank_log(rank) for rank in range(len(offsets))]
        self._most = most
        self._at = list(offsets)
        for rank, log in enumerate(self._logs):  # of very much, the end
            self._at[rank] = max(offsets[rank], _length(log) - most)

    def new(self) -> list[tuple[int, str]]:
        """Of each rank that has written, the new text; complete lines only."""
        found = []
        for rank, log in enumerate(self._logs):
            try:
                with open(log, "rb") as file:
                    file.seek(self._at[rank])
                    text = file.read(self._most)
            except OSError:
                continue
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
