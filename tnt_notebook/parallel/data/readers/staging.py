"""Local copies of files, made once on each node, which all its ranks read.

::

    /tmp/tnt-staged-1000/         for its owner only
        3f2a91c07be4d815/         of these files, as they are now
            users                 locked, shared, by every process that reads the copies
            copying               locked by the one that copies, which says here how far it is
            done                  all are there
            0/train-0.tfrecord    files of one folder lie in one folder
            0/train-1.tfrecord
            1/test.tfrecord

The system lets locks go when a process ends, however it does. A keeper, a process of its own, waits
until the last user is gone, and removes the copies. If it was killed too, the next ``staged`` on
that node removes what nobody uses.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tnt_notebook import comm, files
from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.readers import keeper
from tnt_notebook.parallel.data.readers.paths import Paths, existing, files_of
from tnt_notebook.parallel.data.readers.progress_lines import ProgressLines
from tnt_notebook.sizes import size

#: Files that are copied at a time, and bytes after which it is said how far a copy is.
_AT_A_TIME, _PIECE = 4, 16 << 20
#: What a disk has to have beside the copies.
_SPARE = 64 << 20
#: Between two looks at who copies; without news for so long, it is given up.
_LOOK_S, _GIVEN_UP_S = 0.05, 120.0


class Original(NamedTuple):
    """A file that is copied: from where, to where below the folder of copies; as it is now."""

    path: str
    copy: str
    bytes: int
    changed_ns: int


def staged(paths: Paths, to: str | os.PathLike[str] | None = None) -> list[str]:
    """Local copies of files, made once on each node; its other ranks wait until they are there.

    They are removed when the last process of the node that asked for them has ended, however it
    has. Whoever asks for the same files meanwhile gets the same copies; of files that have changed
    since, by size or time, new ones.

    Args:
        paths: files, folders, or patterns such as ``"train/*.tfrecord"``.
        to: a folder on a disk of the node. Default: what TNT_STAGE_DIR or SLURM_TMPDIR in the
            environment says, or where temporary files go.

    Returns:
        The copies of files and folders, in their order.

    Raises:
        DataError: a file is missing or changes while it is copied, the disk has not enough room, or
            the rank that copies does not get on.

    Example::

        (flowers,) = tnt.data.staged("/project/flowers")
        samples = tnt.data.images(flowers, size=(224, 224), shuffle=True)
    """
    given = [existing(path) for path in files_of(paths)]
    places = _places(given)
    originals = _originals(places)
    root = _root(to)
    _sweep(root)
    folder = root / _key(originals)
    while not _is_used(folder):
        pass  # it was removed while we asked
    try:
        _wait(folder, originals)
    except BaseException:
        _leave(folder)
        raise
    return [str(folder / places[path]) for path in given]


def _places(given: list[str]) -> dict[str, str]:
    """Where each goes: what lies in one folder goes into one."""
    parents = sorted({os.path.dirname(os.path.realpath(path)) for path in given})
    number = {parent: str(i) for i, parent in enumerate(parents)}
    return {
        path: os.path.join(number[os.path.dirname(real)], os.path.basename(real))
        for path in given
        for real in [os.path.realpath(path)]
    }


def _originals(places: dict[str, str]) -> list[Original]:
    """All files, those of folders too, sorted."""
    found = []
    for path, copy in places.items():
        inside = [path]
        if os.path.isdir(path):
            walked = os.walk(path, followlinks=True)
            inside = [os.path.join(at, name) for at, _, names in walked for name in names]
        for file in inside:
            known = os.stat(file)
            place = os.path.normpath(os.path.join(copy, os.path.relpath(file, path)))
            found.append(Original(file, place, known.st_size, known.st_mtime_ns))
    return sorted(set(found))


def _key(originals: list[Original]) -> str:
    """Of these files, as they are."""
    known = [(os.path.realpath(file.path), *file[1:]) for file in originals]
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _root(to: str | os.PathLike[str] | None) -> Path:
    said = os.environ.get("TNT_STAGE_DIR") or os.environ.get("SLURM_TMPDIR")
    root = Path(to or said or tempfile.gettempdir()).absolute() / f"tnt-staged-{os.getuid()}"
    try:
        root.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"Nothing can be staged in {root.parent}: {error.strerror}.") from error
    known = root.lstat()
    if known.st_uid != os.getuid() or known.st_mode & 0o077 or root.is_symlink():
        raise DataError(f"{root} is open to other users: remove it, or name another folder, to=...")
    return root


# Who uses a folder ------------------------------------------------------------------------------

#: The locks that this process holds, by folder.
_held: dict[Path, int] = {}


def _is_used(folder: Path) -> bool:
    """Makes this process a user of a folder, which is made if need be. False: try again."""
    if folder in _held and (folder / keeper.USERS).exists():
        return True
    try:
        folder.parent.mkdir(0o700, exist_ok=True)
        folder.mkdir(0o700, exist_ok=True)
        lock = os.open(folder / keeper.USERS, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return False
    fcntl.flock(lock, fcntl.LOCK_SH)  # for the moment in which somebody removes it, at most
    if not keeper.is_at(lock, folder):
        os.close(lock)
        return False
    _held[folder] = lock
    return True


def _leave(folder: Path) -> None:
    """This process uses it no more; if it was the last, it is removed."""
    lock = _held.pop(folder, None)
    if lock is not None:
        keeper.remove_if_unused(lock, folder)
        os.close(lock)


def _leave_all() -> None:
    for folder in list(_held):
        _leave(folder)


atexit.register(_leave_all)


def _forget() -> None:
    """A child has its parent's locks by inheritance; it is the parent that uses them."""
    for lock in _held.values():
        os.close(lock)
    _held.clear()


os.register_at_fork(after_in_child=_forget)


def _sweep(root: Path) -> None:
    """Removes what processes have left behind that were killed."""
    for folder in root.iterdir():
        if folder in _held:
            continue
        if folder.suffix == keeper.GONE:
            shutil.rmtree(folder, ignore_errors=True)  # somebody else may do so, too
            continue
        try:
            lock = os.open(folder / keeper.USERS, os.O_RDWR)
        except OSError:
            continue  # it is being made, or removed
        try:
            keeper.remove_if_unused(lock, folder)
        finally:
            os.close(lock)


# Who copies -------------------------------------------------------------------------------------


def _wait(folder: Path, originals: list[Original]) -> None:
    """Until all copies are there: made by whoever is the first, or by the next if that one dies."""
    done, copying = folder / "done", folder / "copying"
    known, since = -1, time.monotonic()
    lock = os.open(copying, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not done.exists():
            with _taken(lock) as mine:
                if mine and not done.exists():
                    _copy(folder, originals, lock)
                    return
            far = os.fstat(lock).st_mtime_ns
            if far != known:
                known, since = far, time.monotonic()
            if time.monotonic() - since > _GIVEN_UP_S:
                raise DataError(
                    f"Rank {comm.rank()} waits for copies in {folder}, which another process of "
                    f"this node makes, and nothing has come for {_GIVEN_UP_S:.0f} s: see whether "
                    "the originals can still be read."
                )
            time.sleep(_LOOK_S)
    finally:
        os.close(lock)


@contextlib.contextmanager
def _taken(lock: int) -> Iterator[bool]:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _copy(folder: Path, originals: list[Original], lock: int) -> None:
    for rest in folder.iterdir():  # of one that has died meanwhile
        if rest.is_dir():
            shutil.rmtree(rest)
    total = sum(file.bytes for file in originals)
    free = shutil.disk_usage(folder).free
    if total + _SPARE > free:
        raise DataError(
            f"Rank {comm.rank()}: on {os.uname().nodename} {size(free)} are free in "
            f"{folder.parent.parent}, and the copies take {size(total)}. Make room, name another "
            "disk, staged(..., to=...), or read the files where they are."
        )
    _start_keeper(folder)
    for place in sorted({p for file in originals for p in Path(file.copy).parents}):
        (folder / place).mkdir(0o700, exist_ok=True)
    leave: list[bool] = []
    # One rank of each node copies; one of them tells of it.
    node = comm.world().node
    tells = node[comm.rank()] == node[0]
    with (
        ProgressLines("copies on each node", total, size, tells) as lines,
        ThreadPoolExecutor(_AT_A_TIME) as pool,
    ):
        copies = [pool.submit(_copy_file, folder, file, lock, lines, leave) for file in originals]
        try:
            for copy in copies:
                copy.result()
        except BaseException:  # Ctrl-C, too
            leave.append(True)
            for copy in copies:
                copy.cancel()
            raise
    (folder / "done").touch(0o600)


def _copy_file(
    folder: Path, file: Original, lock: int, lines: ProgressLines, leave: list[bool]
) -> None:
    part = folder / f"{file.copy}.part"
    at = 0
    try:
        with open(file.path, "rb") as source, open(part, "wb", opener=files.private) as target:
            while not leave and (sent := os.sendfile(target.fileno(), source.fileno(), at, _PIECE)):
                at += sent
                os.utime(lock)  # which those who wait look at
                lines.done(sent)
            known = os.fstat(source.fileno())
    except OSError as error:
        why = f"after {size(at)}: {error.strerror}" if at else error.strerror
        raise DataError(
            f"Rank {comm.rank()} cannot copy {file.path} to {folder}, {why}."
        ) from error
    if leave:
        return
    if (known.st_size, known.st_mtime_ns, at) != (file.bytes, file.changed_ns, file.bytes):
        raise DataError(
            f"{file.path} has changed while rank {comm.rank()} copied it: it had "
            f"{size(file.bytes)}, and {size(at)} have come. Run it again when the file is whole."
        )
    os.replace(part, folder / file.copy)


def _start_keeper(folder: Path) -> None:
    # Without the marks by which the processes of a cluster are found and ended: it outlives them.
    subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, str(folder)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={}, cwd="/", start_new_session=True,
    )  # fmt: skip
