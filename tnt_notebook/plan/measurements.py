"""What was measured of layers, kept in a file of the user's cache for the next time.

The file is ``tnt_notebook/profile.json`` in the folder for caches (``XDG_CACHE_HOME``, or
``~/.cache``). What is wrong with it is no error: then all is measured anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import platformdirs

#: The oldest go first. An entry takes about 150 bytes.
MOST_ENTRIES = 4096

_VERSION = 1


@dataclass(frozen=True)
class Measured:
    """What a call of a layer takes and keeps.

    Attributes:
        forward, inputs, weights: seconds: forward, gradient of its inputs, and of its weights.
        inner_bytes: what backward needs beside inputs and outputs.
        kept: which of its inputs and outputs backward needs: ``x0``, ``y0``, ...
    """

    forward: float
    inputs: float
    weights: float
    inner_bytes: float
    kept: tuple[str, ...]


def file() -> Path:
    """Where measurements are kept, whether it is there or not."""
    return Path(platformdirs.user_cache_dir("tnt_notebook")) / "profile.json"


def key_of(description: str) -> str:
    """A short name for all that a measurement depends on."""
    return hashlib.blake2b(description.encode(), digest_size=16).hexdigest()


def load() -> dict[str, Measured]:
    """All measurements, by key; none where the file is not there, or broken."""
    try:
        table = json.loads(file().read_text(encoding="utf-8"))
        entries = table["entries"] if table["version"] == _VERSION else {}
        known = {key: _parsed(entry) for key, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {key: measured for key, measured in known.items() if measured is not None}


def save(new: Mapping[str, Measured]) -> None:
    """Adds measurements to those of the file, if it can be written."""
    path = file()
    entries = {key: m for key, m in load().items() if key not in new} | dict(new)
    latest = dict(list(entries.items())[-MOST_ENTRIES:])
    table = {"version": _VERSION, "entries": {key: astuple(m) for key, m in latest.items()}}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # For the user alone, and readers see the old file or the new.
        number, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with open(number, "w", encoding="utf-8") as out:
                json.dump(table, out)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise


def _parsed(entry: Any) -> Measured | None:
    """An entry of the file, if it is one."""
    if not isinstance(entry, list) or len(entry) != 5:
        return None
    forward, inputs, weights, inner_bytes, kept = entry
    numbers = (forward, inputs, weights, inner_bytes)
    usual = all(type(n) in (int, float) and math.isfinite(n) and n >= 0 for n in numbers)
    if not usual or not isinstance(kept, list) or not all(isinstance(k, str) for k in kept):
        return None
    return Measured(forward, inputs, weights, inner_bytes, tuple(kept))
