"""A note about the latest fit, in the cluster's folder, for a notebook that attaches later."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from tnt_notebook import files
from tnt_notebook.cluster.files.folder import RunFolder
from tnt_notebook.cluster.files.log_tails import length

_NAME = "fit.json"


@dataclass(frozen=True)
class FitNote:
    """What a notebook needs to follow a fit that another one has started.

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


def write(folder: RunFolder, ranks: int, note: FitNote) -> None:
    """Replaces the note in the folder; adds how long the ranks' logs are now."""
    logs = tuple(length(folder.rank_log(rank)) for rank in range(ranks))
    files.replace(folder.path / _NAME, asdict(replace(note, logs=logs)))


def read(folder: RunFolder) -> FitNote | None:
    """The note in the folder; None where no fit was started."""
    try:
        note: FitNote = files.typed(FitNote, json.loads((folder.path / _NAME).read_bytes()))
        return note if all(0 <= size < 1 << 60 for size in note.logs) else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def remove(folder: RunFolder) -> None:
    """Forgets the latest fit: what runs now is none, and cannot be followed."""
    (folder.path / _NAME).unlink(missing_ok=True)
