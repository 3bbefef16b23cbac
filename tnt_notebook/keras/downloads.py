"""Files that Keras downloads, such as weights of ``keras.applications``: once for all ranks.

Ranks that share a home folder want the same file at the same time, and Keras lets each of them
write it, and remove it where it fails. Here one of them downloads, and the others wait for it::

    lock  ->  file is there?  --yes-->  return
                   | no
                   v
              download beside it  ->  rename: who reads sees all of it, or nothing

A lock is the kernel's, and ends with the rank that holds it, however that ends. What a rank could
not download the others that have waited for it do not try again: where there is no internet, each
would wait as long.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from keras.src.utils import file_utils

from tnt_notebook.errors import DownloadError
from tnt_notebook.files import private

#: Without a word for so long a server is given up, in seconds; and after so long a rank that
#: others wait for.
SILENCE_S = 60.0
LONGEST_S = 3600.0

_POLL_S = 0.1

Retrieve = Callable[[str, str, Any], Any]


def install() -> None:
    """From now on, what Keras downloads in this process is downloaded by one process at a time."""
    if file_utils.urlretrieve.__module__ != __name__:
        usual = file_utils.urlretrieve

        def once(origin: str, target: str, progress: Any = None) -> None:
            download_once(origin, Path(target), progress, usual)

        file_utils.urlretrieve = once


def download_once(origin: str, target: Path, progress: Any, retrieve: Retrieve) -> None:
    """Downloads a file, unless another process does so meanwhile.

    Args:
        origin: its URL.
        target: where it is to lie; what is there already is replaced.
        progress: called as by ``urllib.request.urlretrieve``.
        retrieve: downloads.

    Raises:
        DownloadError: this process could not, or the one that it has waited for.
    """
    before = _version(target)
    with _locked(target, origin) as lock:
        if failure := lock.read():
            raise DownloadError(failure)
        if _version(target) != before:
            return
        for left in target.parent.glob(f".{target.name}.part-*"):  # by one that was killed
            left.unlink(missing_ok=True)
        beside = target.with_name(f".{target.name}.part-{socket.gethostname()}-{os.getpid()}")
        silence = socket.getdefaulttimeout()
        socket.setdefaulttimeout(SILENCE_S)
        try:
            retrieve(origin, str(beside), progress)
            beside.replace(target)
        except OSError as error:  # of urllib, sockets and files
            failure = _failure(origin, target, error)
            lock.write(failure)
            lock.flush()
            raise DownloadError(failure) from None
        finally:
            socket.setdefaulttimeout(silence)
            beside.unlink(missing_ok=True)


def _version(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextlib.contextmanager
def _locked(target: Path, origin: str) -> Iterator[IO[str]]:
    """A file beside the target, locked; in it, what has failed for the one who had it before."""
    path = target.with_name(f".{target.name}.lock")
    deadline = time.monotonic() + LONGEST_S
    while True:
        with open(path, "a+", encoding="utf-8", opener=private) as file:
            _lock(file, deadline, origin)
            file.seek(0)
            is_left = os.fstat(file.fileno()).st_nlink == 0
            if is_left and not file.read():
                continue  # who had it has removed it: another one counts now
            file.seek(0)
            try:
                yield file
            finally:
                if not is_left:
                    path.unlink(missing_ok=True)
            return


def _lock(file: IO[str], deadline: float, origin: str) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DownloadError(
                    f"Another rank has been downloading {origin} for {LONGEST_S:.0f} s. Download "
                    "it before, on a machine with a faster network and the same home folder."
                ) from None
            time.sleep(_POLL_S)


def _failure(origin: str, target: Path, error: OSError) -> str:
    why = getattr(error, "reason", None) or error
    return (
        f"{socket.gethostname()} cannot download {origin}: {why}. Is there no internet? Then "
        f"download it where there is some, and put it at {target}."
    )
