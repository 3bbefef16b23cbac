"""New lines in the logs of the ranks, as they are written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tnt_notebook.allowance import TEXT, Allowance
from tnt_notebook.cluster.files.folder import RunFolder
from tnt_notebook.cluster.output.banner import without_banner

_FAR = 32 << 20  # behind the end of a log; half of what is kept of it


class LogTails:
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
        self._shown = [Allowance(max(most, TEXT // len(self._logs))) for _ in self._logs]
        sizes = [length(log) for log in self._logs]
        self._at = [
            size if offset is None else max(offset, size - most)
            for offset, size in zip(offsets, sizes, strict=True)
        ]

    def new(self) -> list[tuple[int, str]]:
        """Of each rank that has written, the new text as it is to be shown: complete lines, but for
        TensorFlow's banner."""
        found = []
        for rank, log in enumerate(self._logs):
            try:
                with open(log, "rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    if not size - _FAR <= self._at[rank] <= size:
                        # The front of a long log is cut away, so this could be gone.
                        self._at[rank] = max(0, size - self._most)
                    file.seek(self._at[rank])
                    text = file.read(self._most)
            except OSError:
                continue
            if b"\n" in text or len(text) < self._most:  # else it is one very long line
                text = text[: text.rfind(b"\n") + 1]
            if text:
                self._at[rank] += len(text)
                text = text.lstrip(b"\0")  # of a front that was cut away
                new = without_banner(text.decode(errors="replace"))
                if shown := self._shown[rank].shown("log", new):
                    found.append((rank, shown))
        return found

    def left_out(self) -> list[tuple[int, str]]:
        """Of each rank of which something was left out, what is said of it at the end."""
        said = enumerate(allowance.left_out() for allowance in self._shown)
        return [(rank, text) for rank, gaps in said for text in gaps.values()]


def length(log: Path) -> int:
    """Bytes of a log; 0 where there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0
