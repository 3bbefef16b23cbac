"""What meters say, in words; ``widgets/meters.js`` has the same for the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tnt_notebook.telemetry.curves import curves_of, meters_in, said

_UNITS = {"MiB": (1024, ("MB", "GB", "TB")), "kB/s": (1000, ("kB/s", "MB/s", "GB/s"))}


def measured(unit: str, number: float) -> str:
    """A number with its unit, short: 97%, 812 MB, 1.2 GB, 340 kB/s, 85 W."""
    if unit not in _UNITS:
        return f"{number:.0f}{'' if unit == '%' else ' '}{unit}"
    factor, names = _UNITS[unit]
    power = 0
    while number >= 999.5 and power < 2:
        number, power = number / factor, power + 1
    return f"{number:.{int(power > 0 and number < 9.95)}f} {names[power]}"


def meters_in_words(frames: Sequence[Mapping[str, Any]]) -> str:
    """``CPU 83%, host mem. up to 41%``, without the memory of ranks, which a summary has; nothing
    where nothing was measured."""
    curves = curves_of(frames)
    return ", ".join(
        f"{meter.label} {'up to ' * (meter.said == 'most')}"
        f"{measured(meter.unit, said(curves, meter))}"
        for meter in meters_in(curves)
        if meter.name != "memory"
    )
