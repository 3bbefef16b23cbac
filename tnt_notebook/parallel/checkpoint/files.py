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
from collections.abc import Iterator, Mapping
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
    """Writes arrays, of any shape and any dtype of NumPy or ``ml_dtypes``, through to the disk, and
    gives the digest of the shard."""
    entries, begin = [], 0
    with open(folder / f"shard-{number}.bin", "xb", opener=private) as file:
        for name, array in arrays.items():
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
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
    """Writes JSON, to the disk, and gives its digest; who reads sees the old file or the new."""
    text = json.dumps(facts, separators=(",", ":")).encode()
    digest = _digest(text)
    beside = path.with_name(f"{path.name}.new")
    with open(beside, "wb", opener=private) as file:
        file.write(digest.encode() + b"\n" + text)
        _to_disk(file)
    os.replace(beside, path)
    return digest


def read_facts(path: Path, digest: str | None = None) -> Any:
    """What :func:`write_facts` wrote. Raises Damaged if it has changed since, is not there, or has
    another digest than is asked for."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from None
    line, text = content[:_LINE], content[_LINE:]
    if line != _digest(text).encode() + b"\n":
        raise Damaged(f"{path.name} is damaged")
    if digest is not None and line[:-1] != digest.encode():
        raise Damaged(f"{path.name} belongs to another checkpoint")
    return json.loads(text)


class Arrays(Mapping[str, np.ndarray]):
    """The arrays of some shards, whose digests are given by number; each is read and checked when
    it is asked for. Raises Damaged, then or now, where a file is not the one that was written."""

    def __init__(self, folder: Path, digests: Mapping[int, str]) -> None:
        self._entries: dict[str, tuple[Path, dict[str, Any]]] = {}
        for number, digest in digests.items():
            facts = read_facts(folder / f"shard-{number}.json", digest)
            path = folder / f"shard-{number}.bin"
            found = path.stat().st_size if path.is_file() else None
            if found != facts["bytes"]:
                state = "is missing" if found is None else f"has {found} bytes"
                raise Damaged(f"{path.name} {state}, not {facts['bytes']}")
            self._entries |= {entry["name"]: (path, entry) for entry in facts["arrays"]}

    def __getitem__(self, name: str) -> np.ndarray:
        path, entry = self._entries[name]
        dtype, shape = dtype_of(entry["dtype"]), tuple(entry["shape"])
        with open(path, "rb") as file:
            file.seek(entry["begin"])
            content = file.read(math.prod(shape) * dtype.itemsize)
        if _digest(content) != entry["digest"]:
            raise Damaged(f"{name} in {path.name} is damaged")
        return np.frombuffer(content, dtype).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


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


def _digest(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
