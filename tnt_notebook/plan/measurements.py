"""What was measured of layers, of what ranks exchange with, of steps and of fits, kept in files of
the user's cache for the next time.

The files are ``profile.json``, ``links.json``, ``steps.json``, ``fits.json`` (what fits by plan
took) and such in the folder
``tnt_notebook`` of that for caches (``XDG_CACHE_HOME``, or ``~/.cache``). What is wrong with them
is no error: then all is measured anew.
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

#: Fits by plan that are kept of the same ranks.
MOST_FITS = 64

_VERSION = 1


@dataclass(frozen=True)
class Measured:
    """What a call of a layer takes and keeps.

    Attributes:
        forward, inputs, weights: seconds: forward, gradient of its inputs, and of its weights.
        again: seconds of what backward needs of forward, where that is done again for it.
        inner_bytes: what backward needs beside inputs and outputs.
        kept: which of its inputs and outputs backward needs: ``x0``, ``y0``, ...
    """

    forward: float
    inputs: float
    weights: float
    again: float
    inner_bytes: float
    kept: tuple[str, ...]


def file(name: str = "profile") -> Path:
    """Where measurements are kept, whether it is there or not."""
    return Path(platformdirs.user_cache_dir("tnt_notebook")) / f"{name}.json"


def key_of(description: str) -> str:
    """A short name for all that a measurement depends on."""
    return hashlib.blake2b(description.encode(), digest_size=16).hexdigest()


def load() -> dict[str, Measured]:
    """All measurements of layers, by key; none where the file is not there, or broken."""
    known = {key: _parsed(entry) for key, entry in _entries("profile").items()}
    return {key: measured for key, measured in known.items() if measured is not None}


def save(new: Mapping[str, Measured]) -> None:
    """Adds measurements of layers to those of the file, if it can be written."""
    _save("profile", load(), new)


def load_numbers(kind: str, key: str, count: int) -> tuple[float, ...] | None:
    """So many numbers that were measured of something; None where they are not known.

    Args:
        kind: of measurement: the name of its file.
    """
    entry = _entries(kind).get(key)
    if not isinstance(entry, list) or len(entry) != count or not all(map(_is_usual, entry)):
        return None
    return tuple(entry)


def save_numbers(kind: str, key: str, numbers: tuple[float, ...]) -> None:
    """Adds them, if the file can be written."""
    _save(kind, _entries(kind), {key: numbers})


def fits(key: str) -> list[tuple[float, float]]:
    """Of the latest fits by plan on some ranks, seconds of a step: promised and measured."""
    entry = _entries("fits").get(key)
    kept = entry if isinstance(entry, list) else []
    return [(one[0], one[1]) for one in kept if _are_times(one)]


def add_fit(key: str, promised_s: float, measured_s: float) -> None:
    """Adds one, if the file can be written; both in seconds."""
    latest = [*fits(key), (promised_s, measured_s)][-MOST_FITS:]
    _save("fits", _entries("fits"), {key: latest})


def _are_times(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(_is_usual(s) and s > 0 for s in pair)


def _entries(name: str) -> dict[str, Any]:
    try:
        table = json.loads(file(name).read_text(encoding="utf-8"))
        entries = table["entries"] if table["version"] == _VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _save(name: str, known: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    path = file(name)
    entries = {key: m for key, m in known.items() if key not in new} | dict(new)
    latest = dict(list(entries.items())[-MOST_ENTRIES:])
    rows = {
        key: list(m) if isinstance(m, (tuple, list)) else astuple(m) for key, m in latest.items()
    }
    table = {"version": _VERSION, "entries": rows}
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


def _is_usual(number: Any) -> bool:
    return type(number) in (int, float) and math.isfinite(number) and number >= 0


def _parsed(entry: Any) -> Measured | None:
    """An entry of the file, if it is one."""
    if not isinstance(entry, list) or len(entry) != 6:
        return None
    forward, inputs, weights, again, inner_bytes, kept = entry
    numbers = (forward, inputs, weights, again, inner_bytes)
    are_names = isinstance(kept, list) and all(isinstance(k, str) for k in kept)
    if not are_names or not all(map(_is_usual, numbers)):
        return None
    return Measured(*numbers, tuple(kept))
