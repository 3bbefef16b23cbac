"""Samples that cannot be read: which, where, why; and what stands in the place of one.

What stands there depends on the number of the sample alone, so that the batches are the same for
every number of ranks.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tnt_notebook import comm
from tnt_notebook.error_text import brief
from tnt_notebook.errors import DataError

Reader = Callable[[np.ndarray], Sequence[np.ndarray]]
"""From the numbers of samples (int64) to their leaves, each of shape (samples, ...)."""

#: How many are named where all are counted.
_NAMED = 5


class Damage(NamedTuple):
    """A sample, or more, that this process could not read.

    Attributes:
        where: its file, and its place there.
        why: what is wrong with it.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass
class _Seen:
    """What this process has met, in the order in which it did; `raised`: what ended a call."""

    lock: threading.Lock
    skipped: dict[Damage, None]
    raised: list[DataError]


_seen = _Seen(threading.Lock(), {}, [])


def skipped() -> list[Damage]:
    """What this process has skipped so far, because it could not be read, each once."""
    with _seen.lock:
        return list(_seen.skipped)


def skip(damage: Damage) -> None:
    """Counts it, and warns of the first one, the tenth, the hundredth and so on."""
    with _seen.lock:
        if damage in _seen.skipped:
            return
        _seen.skipped[damage] = None
        count = len(_seen.skipped)
    if str(count).strip("0") == "1":
        what = "is skipped" if count == 1 else f"is the {count}th that is skipped"
        warnings.warn(f"{_of_rank()}{damage}. It {what}.", stacklevel=2)


def cannot_read(damage: Damage, hint: str = 'pass damaged="skip" to go on without it') -> DataError:
    """The error that ends training, of which TensorFlow will make one of its own."""
    error = DataError(f"{_of_rank()}{damage}. Repair or remove it, or {hint}.")
    with _seen.lock:
        _seen.raised.append(error)
    return error


def behind(message: str) -> DataError | None:
    """The error of ours of which TensorFlow tells in a message, if it is one."""
    with _seen.lock:
        found = [error for error in _seen.raised if str(error) in message]
        _seen.raised.clear()
    return found[-1] if found else None


def told(damages: Sequence[Damage]) -> str:
    """Counts what was skipped, and names the first: for the end of a run."""
    if not damages:
        return ""
    names = "; ".join(map(str, damages[:_NAMED]))
    more = f"; and {len(damages) - _NAMED} more" if len(damages) > _NAMED else ""
    what = "was 1" if len(damages) == 1 else f"were {len(damages)}"
    return f"{_of_rank()}there {what} that could not be read, and skipped: {names}{more}"


def read_whole(read: Reader, where: Callable[[int], str], count: int, skips: bool) -> Reader:
    """A reader that never gives less than it is asked for: it raises, or in the place of a sample
    that cannot be read it gives the next one that can be."""

    def one(number: int) -> Sequence[np.ndarray]:
        for tried in range(count):
            at = (number + tried) % count
            try:
                return read(np.array([at]))
            except Exception as error:  # any: whatever a library finds wrong with a file
                damage = Damage(where(at), reason(error))
            if not skips:
                raise cannot_read(damage)
            skip(damage)
        raise cannot_read(damage, f"see to the rest: none of {count} samples can be read")

    def whole(numbers: np.ndarray) -> Sequence[np.ndarray]:
        try:
            return read(numbers)
        except Exception:  # one by one, to find which
            rows = [one(int(number)) for number in numbers]
        return [np.concatenate(leaf) for leaf in zip(*rows, strict=True)]

    return whole


def reason(error: Exception) -> str:
    """What an error says, without what TensorFlow adds; what kind it is, if it says nothing."""
    if isinstance(error, FileNotFoundError):
        return "the file is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    said = brief(error)
    return said.removeprefix("DataError: ")


def _of_rank() -> str:
    return f"rank {comm.rank()}: " if comm.size() > 1 else ""
