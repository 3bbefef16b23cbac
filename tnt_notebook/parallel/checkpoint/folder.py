"""The folder of a run's checkpoints.

::

    run.json              whose checkpoints these are, who writes them, the first random state,
                          whether the run has ended
    step-00001200/        a checkpoint after so many steps of the run: see `files`
    step-00001400/        the newest one
    fit-0001/             at the end of the first call of fit
    .step-00001600.part/  one that is being written, or was not finished

A name without a dot is whole: it is given when all is on disk.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tnt_notebook.errors import CheckpointError
from tnt_notebook.parallel.checkpoint import files
from tnt_notebook.parallel.checkpoint.files import MANIFEST, Damaged

_WHOLE = re.compile(r"step-\d{8,}|fit-\d{4,}")
_LEFT = re.compile(r"\.(step|fit)-\d+\.(part|old)|run\.json\.new|\.seen-\d+")
_RUN = "run.json"


def named(folder: str | os.PathLike[str]) -> Path:
    """The folder that a person names. Raises CheckpointError where nothing can have that name."""
    text = os.fspath(folder)
    try:
        if text.strip() and "\0" not in text:
            return Path(text).expanduser().absolute()
    except RuntimeError:  # ~somebody who is not there
        pass
    raise CheckpointError(f"No folder of checkpoints can have the name {text!r}. Name another.")


def make(folder: Path) -> str:
    """Makes the folder, unless it is there, sees to it that nobody else can write into it, and
    gives its name. Raises CheckpointError where it cannot be used."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        os.listdir(folder)
    except OSError as error:
        raise CheckpointError(
            f"The folder of checkpoints {folder} cannot be used ({_why_not(folder, error)}). Name "
            "another."
        ) from None
    if about.st_uid != os.geteuid():
        raise CheckpointError(
            f"The folder of checkpoints {folder} belongs to another user, who could put anything "
            "into it. Name one of your own."
        )
    if stat.S_IMODE(about.st_mode) & 0o022:
        raise CheckpointError(
            f"Other users can write into the folder of checkpoints {folder}. Name another, or take "
            f"that right away: chmod go-w {folder}"
        )
    return str(folder)


def _why_not(folder: Path, error: OSError) -> str:
    for path in (folder, *folder.parents):
        if path.is_symlink() and not path.exists():
            return f"{path} is a link to {os.readlink(path)}, which is not there"
        if path.exists():
            return str(error.strerror) if path.is_dir() else f"{path} is a file"
    return str(error.strerror)


def read_run(folder: Path) -> dict[str, Any] | None:
    """What the folder says about its run; ``None`` in one that is new. Raises CheckpointError where
    it holds something else."""
    if not (folder / _RUN).exists():
        left = (name for name in os.listdir(folder) if not _LEFT.fullmatch(name))
        others = sorted(name for name in left if not _WHOLE.fullmatch(name))
        if others:
            raise CheckpointError(
                f"The folder {folder} holds other things than checkpoints ({others[0]}). Name an "
                "empty one, or one that is not there."
            )
        return None
    try:
        return files.read_facts(folder / _RUN)
    except Damaged as error:
        raise CheckpointError(
            f"The checkpoints in {folder} cannot be used: {error}. Name another folder, or start "
            "over in this one."
        ) from None


def write_run(folder: Path, about: dict[str, Any]) -> None:
    """Says about the run what :func:`read_run` will give."""
    files.write_facts(folder / _RUN, about)
    files.folder_to_disk(folder)


def check_held(folder: Path, holder: str) -> None:
    """Raises OSError where another run goes on in this folder."""
    try:
        held = files.read_facts(folder / _RUN)["holder"] == holder
    except Damaged as error:
        raise OSError(str(error)) from None
    if not held:
        raise OSError("another run goes on from these checkpoints")


def whole(folder: Path) -> list[str]:
    """Names of the checkpoints that were finished, of unknown condition."""
    return sorted(name for name in os.listdir(folder) if _WHOLE.fullmatch(name))


def part(folder: Path, name: str) -> Path:
    """Where a checkpoint is written. It is made, unless it is there."""
    path = folder / f".{name}.part"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def finish(folder: Path, name: str, manifest: dict[str, Any]) -> None:
    """Makes a checkpoint that all ranks have written one that counts."""
    path = folder / f".{name}.part"
    files.write_facts(path / MANIFEST, manifest)
    files.folder_to_disk(path)
    if (folder / name).exists():  # found damaged, and so written again
        remove(folder, [name])
    os.rename(path, folder / name)
    files.folder_to_disk(folder)


def remove(folder: Path, names: Iterable[str]) -> None:
    """Removes checkpoints; one that is removed by half is none."""
    for name in names:
        old = folder / f".{name}.old"
        os.rename(folder / name, old)
        _remove(old)


def give_up(folder: Path, name: str) -> None:
    """Removes a checkpoint that could not be finished; what is written there later stays until
    :func:`remove_left_over`."""
    shutil.rmtree(folder / f".{name}.part", ignore_errors=True)


def remove_left_over(folder: Path) -> None:
    """Removes what a run that was killed had not finished. Others may remove theirs meanwhile: each
    rank the file by which it saw that the folder is shared."""
    for name in os.listdir(folder):
        if _LEFT.fullmatch(name):
            _remove(folder / name)


def _remove(path: Path) -> None:
    """What has the name of a checkpoint may be a file, or a link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def clear(folder: Path) -> None:
    """Removes all checkpoints, and nothing else."""
    remove_left_over(folder)
    remove(folder, whole(folder))
    (folder / _RUN).unlink(missing_ok=True)
