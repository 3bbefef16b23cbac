"""Arrays and facts in files that tell when they are damaged. No pickle: plain bytes and JSON.

::

    shard-3.bin     the bytes of arrays, one after the other, little-endian
    shard-3.json    of each its name, dtype, shape, place in the former, and BLAKE2b
    manifest.json   the BLAKE2b of each of the latter, and what else belongs to the checkpoint

A file of facts begins with the BLAKE2b of all that follows its first line. So one digest stands
for a whole checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tnt_notebook.files import private

MANIFEST = "manifest.json"
_DIGEST_BYTES = 16
_LINE = 2 * _DIGEST_BYTES + 1


class Damaged(ValueError):
    """A file is not what was written; the message says what is wrong, without a full stop."""


def write_shard(folder: Path, number: int, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes arrays, through to the disk.

    Args:
        arrays: by name, of any shape and any dtype of NumPy or ``ml_dtypes``.

    Returns:
        The digest of the shard.

    Raises:
        OSError: they cannot be written.
    """
    entries, begin = [], 0
    with open(folder / f"shard-{number}.bin", "xb", opener=private) as file:
        for name, array in arrays.items():
            content = _bytes_of(array)
            entry = {
                "name": name,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "begin": begin,
                "digest": _digest(content),
            }
            entries.append(entry)
            file.write(content)
            begin += len(content)
        _to_disk(file)
    return write_facts(folder / f"shard-{number}.json", {"bytes": begin, "arrays": entries})


def write_facts(path: Path, facts: Any) -> str:
    """Writes JSON, through to the disk; who reads sees the old file or the new.

    Returns:
        Its digest.
    """
    text = json.dumps(facts, separators=(",", ":")).encode()
    digest = _digest(text)
    beside = path.with_name(f"{path.name}.new")
    with open(beside, "wb", opener=private) as file:
        file.write(digest.encode() + b"\n" + text)
        _to_disk(file)
    os.replace(beside, path)
    return digest


def read_facts(path: Path, digest: str | None = None) -> Any:
    """What :func:`write_facts` wrote.

    Args:
        digest: that it must have.

    Raises:
        Damaged: it has changed since, or is not there.
    """
    content = _content(path)
    line, text = content[:_LINE], content[_LINE:]
    if line != _digest(text).encode() + b"\n":
        raise Damaged(f"{path.name} is damaged")
    if digest is not None and line[:-1] != digest.encode():
        raise Damaged(f"{path.name} belongs to another checkpoint")
    return json.loads(text)


class Shard:
    """A shard that is read: an array at a time, each checked.

    Args:
        digest: the shard's, from the manifest.

    Raises:
        Damaged: it is not the shard that was written.
    """

    def __init__(self, folder: Path, number: int, digest: str) -> None:
        facts = read_facts(folder / f"shard-{number}.json", digest)
        self._path = folder / f"shard-{number}.bin"
        self._entries = {entry["name"]: entry for entry in facts["arrays"]}
        found = self._path.stat().st_size if self._path.is_file() else None
        if found != facts["bytes"]:
            told = "is missing" if found is None else f"has {found} bytes"
            raise Damaged(f"{self._path.name} {told}, not {facts['bytes']}")

    @property
    def names(self) -> list[str]:
        """Of its arrays."""
        return list(self._entries)

    def read(self, name: str) -> np.ndarray:
        """An array.

        Raises:
            Damaged: its bytes have changed.
        """
        entry = self._entries[name]
        dtype, shape = dtype_of(entry["dtype"]), tuple(entry["shape"])
        with open(self._path, "rb") as file:
            file.seek(entry["begin"])
            content = file.read(math.prod(shape) * dtype.itemsize)
        if _digest(content) != entry["digest"]:
            raise Damaged(f"{name} in {self._path.name} is damaged")
        return np.frombuffer(content, dtype).reshape(shape)

    def check(self) -> None:
        """Reads everything.

        Raises:
            Damaged: something has changed.
        """
        for name in self._entries:
            self.read(name)


def dtype_of(name: str) -> np.dtype:
    """A dtype by its name, those of ``ml_dtypes`` too."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def folder_to_disk(folder: Path) -> None:
    """Makes sure that the names in a folder outlive a crash of the machine."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from None


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _digest(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
