"""Samples that cannot be read: which, where, why; and what stands in the place of one.

What stands there depends on the number of the sample alone, so that the batches are the same for
every number of ranks.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tnt_notebook import comm
from tnt_notebook.error_text import brief
from tnt_notebook.errors import DataError

Reader = Callable[[np.ndarray], Sequence[np.ndarray]]
"""From the numbers of samples (int64) to their leaves, each of shape (samples, ...)."""

#: So many samples that follow each other, none of which can be read, are no damage that is skipped.
_MOST_IN_A_ROW = 1000
#: What TensorFlow's errors say of the op that has raised them.
_OF_TENSORFLOW = re.compile(r"\{\{[^}]*\}\} ?| ?\[Op:\w+\]")


class Damage(NamedTuple):
    """A sample, or more, that this process could not read.

    Attributes:
        where: its file, and its place there.
        why: what is wrong with it.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} ({self.why})"


class _Seen:
    """What this process has met.

    Attributes:
        skipped, in_run: since it began, and since the last :func:`begin_run`; each once, in order.
        raised: the latest errors, of which TensorFlow makes some of its own.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.skipped: dict[Damage, None] = {}
        self.in_run: dict[Damage, None] = {}
        self.raised: deque[DataError] = deque(maxlen=16)


_seen = _Seen()


def skipped() -> list[Damage]:
    """What this process has skipped so far because it could not be read, each once.

    Returns:
        Named tuples: ``where``, a file and a place in it, and ``why``.
    """
    with _seen.lock:
        return list(_seen.skipped)


def begin_run() -> None:
    """A fit, an evaluation or a prediction begins."""
    with _seen.lock:
        _seen.in_run.clear()


def skipped_in_run() -> list[Damage]:
    """What was skipped since then."""
    with _seen.lock:
        return list(_seen.in_run)


def skip(damage: Damage) -> None:
    """Counts it, and warns of the first, the tenth, the hundredth and so on."""
    with _seen.lock:
        is_new = damage not in _seen.skipped
        _seen.skipped[damage] = _seen.in_run[damage] = None
        count = len(_seen.skipped)
    if is_new and str(count).strip("0") == "1":
        what = "skipped" if count == 1 else f"the {count}th that is skipped"
        text = f"{what}{_on_this_rank()}, as it cannot be read: {damage}"
        # Where we are says nothing, and the lines of the user are far: TensorFlow calls.
        warnings.warn_explicit(text, UserWarning, "tnt.data", 1)


def cannot_read(damage: Damage, hint: str = 'pass damaged="skip" to go on without it') -> DataError:
    """The error that ends training."""
    where, why = damage
    text = f"{where} cannot be read{_on_this_rank()}: {why}. Repair or remove it, or {hint}."
    error = DataError(text)
    with _seen.lock:
        _seen.raised.append(error)
    return error


def behind(message: str) -> DataError | None:
    """The error of :func:`cannot_read` of which TensorFlow tells in a message, if it is one."""
    with _seen.lock:
        return next((error for error in _seen.raised if str(error) in message), None)


def complete(read: Reader, where: Callable[[int], str], count: int, skips: bool) -> Reader:
    """A reader that gives as many samples as it is asked for, or raises.

    Args:
        read: raises, whatever it is, where one of the samples cannot be read.
        where: names a sample by its number, from 0 to ``count`` - 1.
        skips: whether, in the place of a sample that cannot be read, it gives the next that can be.
    """

    def one(number: int) -> Sequence[np.ndarray]:
        for at in range(number, number + min(count, _MOST_IN_A_ROW)):
            try:
                return read(np.array([at % count]))
            except Exception as error:  # any: whatever a library finds wrong with a file
                damage = Damage(where(at % count), reason(error))
            if not skips:
                raise cannot_read(damage)
            skip(damage)
        raise cannot_read(damage, "see to all: none of the samples before it can be read either")

    def of(numbers: np.ndarray) -> Sequence[np.ndarray]:
        with contextlib.suppress(Exception):
            return read(numbers)
        # One by one, to find which cannot be read.
        rows = [one(int(number)) for number in numbers]
        return [np.concatenate(leaf) for leaf in zip(*rows, strict=True)]

    return of


def reason(error: Exception) -> str:
    """What an error says, in a line."""
    if isinstance(error, FileNotFoundError):
        return "the file is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return _OF_TENSORFLOW.sub("", brief(error)).removeprefix("DataError: ").rstrip(".")


def _on_this_rank() -> str:
    return f" on rank {comm.rank()}" if comm.size() > 1 else ""
