"""Numbers of bytes as people read and write them, in powers of 1024. Both sides use it."""

from __future__ import annotations

import re

_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size(count: float) -> str:
    """Bytes: 512 B, 64 KB, 1.5 GB."""
    for unit in "TGMK":
        if count >= 1 << _POWERS[unit]:
            return f"{count / (1 << _POWERS[unit]):.4g} {unit}B"
    return f"{count:.4g} B"


def parsed_size(text: str) -> int:
    """Bytes that ``4GB``, ``1.5 GiB``, ``800M`` or ``1000`` say.

    Raises:
        ValueError: says how sizes are written.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    count = int(float(match[1]) * (1 << _POWERS[match[2].upper()])) if match else 0
    if count < 1:
        raise ValueError(f"{text!r}: write sizes like 4GB or 800MB")
    return count
