"""Times and rates as people write them, in powers of 1000, as networks are sold."""

from __future__ import annotations

import re

_OF_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "µs": 10**6, "ns": 10**9}
_POWERS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"


def parsed_seconds(text: str) -> float:
    """Seconds that ``1.5 us`` or ``2e-6 s`` say.

    Raises:
        ValueError: says how times are written.
    """
    match = re.fullmatch(rf"{_NUMBER}\s*([mµun]?s)", text.strip())
    if match is None:
        raise ValueError(f'{text!r} is no time: write it like "1.5 us"')
    return float(match[1]) / _OF_A_SECOND[match[2]]


def parsed_rate(text: str) -> float:
    """Bytes a second that ``25 GB/s`` or ``200 Gbit/s`` say.

    Raises:
        ValueError: says how rates are written.
    """
    match = re.fullmatch(rf"{_NUMBER}\s*([kMGT]?)(B|bit)/s", text.strip())
    if match is None:
        raise ValueError(f'{text!r} is no rate: write it like "25 GB/s" or "200 Gbit/s"')
    bits = 8 if match[3] == "bit" else 1
    return float(match[1]) * _POWERS[match[2].lower()] / bits


def rate_text(bytes_per_s: float) -> str:
    """A rate as it is written: 25 GB/s."""
    for unit in "TGMk":
        if bytes_per_s >= _POWERS[unit.lower()]:
            return f"{bytes_per_s / _POWERS[unit.lower()]:.4g} {unit}B/s"
    return f"{bytes_per_s:.4g} B/s"
