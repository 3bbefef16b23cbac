"""What a person says about checkpoints."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tnt_notebook.errors import CheckpointError
from tnt_notebook.parallel.checkpoint.folder import named

#: Seconds between two checkpoints where nothing is said.
USUAL_S = 600.0


@dataclass(frozen=True)
class Checkpoint:
    """Keeps the state of training now and then, so that it can go on where it was.

    A run that did not end goes on from its newest checkpoint when the same cell or script is run
    again with the same folder, also on another number of ranks.

    Args:
        folder: where checkpoints lie, on a file system that all ranks share; it is made if it is
            not there. One run has a folder. ``None``: nowhere, see ``in_memory``.
        every_s: seconds between two checkpoints; default: 600, unless ``every_steps`` is given.
        every_steps: batches between two checkpoints. While one is still being written no other is
            begun.
        keep: how many checkpoints of the running ``fit`` there are; the one at the end of each
            ``fit`` stays until the folder is used anew.
        resume: what to do with what the folder holds already. ``None``: an unfinished run of the
            same cell goes on, anything else is an error. ``True``: it goes on, also if the cell has
            changed. ``False``: it is removed, and the run begins anew.
        run: what tells runs apart: ``%%tnt_fit`` takes the text of its cell. A run goes on of its
            own accord only in one that says the same.
        in_memory: whether every rank keeps the last two checkpoints in its memory as well, whole.
    """

    folder: str | os.PathLike[str] | None
    every_s: float | None = None
    every_steps: int | None = None
    keep: int = 2
    resume: bool | None = None
    run: str = ""
    in_memory: bool = False

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise CheckpointError(f"keep says how many checkpoints to keep, not {self.keep}.")
        if self.every_s is not None and not self.every_s > 0:
            raise CheckpointError(f"every_s is a number of seconds, not {self.every_s}.")
        if self.every_steps is not None and self.every_steps < 1:
            raise CheckpointError(f"every_steps is a number of batches, not {self.every_steps}.")
        if self.folder is None and not self.in_memory:
            raise CheckpointError("A checkpoint needs a folder, or in_memory=True, or both.")
        if self.folder is not None:
            named(self.folder)

    @property
    def seconds(self) -> float:
        """Between two checkpoints; infinite if only steps are counted."""
        if self.every_s is not None:
            return self.every_s
        return float("inf") if self.every_steps else USUAL_S
