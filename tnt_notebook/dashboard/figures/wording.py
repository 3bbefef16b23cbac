"""Numbers and times as people read them; ``widgets/format.js`` is the same for the browser."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tnt_notebook.sizes import size
from tnt_notebook.telemetry.analysis import median_step_s, promised_step_s
from tnt_notebook.telemetry.frame import Frame
from tnt_notebook.telemetry.step_trace import StepTrace

__all__ = [
    "clock",
    "joules",
    "number",
    "plural",
    "progress",
    "promise",
    "rate",
    "short_time",
    "size",
    "three_digits",
    "which_step",
]


def number(value: float | None) -> str:
    """Four significant digits: 0.4321, 12.35, 1.2e-7; NaN for ``None``, which is NaN in frames."""
    if value is None:
        return "NaN"
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e6:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(size)))}f}"


def rate(value: float) -> str:
    """A rate: one decimal below ten, thousands separated above."""
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def clock(seconds: float) -> str:
    """Seconds as a clock: 0:07, 12:34, 1:02:03, 2 d 3:04:05."""
    minutes, s = divmod(max(0, round(seconds)), 60)
    hours, m = divmod(minutes, 60)
    if hours == 0:
        return f"{m}:{s:02}"
    days, h = divmod(hours, 24)
    return f"{f'{days} d ' if days else ''}{h}:{m:02}:{s:02}"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """``1 rank``, ``4 ranks``; what does not take an ``s`` is given."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def short_time(seconds: float) -> str:
    """A time far below a minute, in three digits: 4.27 µs, 138 µs, 2.5 ms, 1.2 s."""
    if seconds < 999.5e-6:
        return f"{three_digits(1e6 * seconds)} µs"
    return f"{three_digits(1e3 * seconds)} ms" if seconds < 0.9995 else f"{three_digits(seconds)} s"


def progress(frame: Frame) -> str:
    """How far a run is: ``epoch 2 of 5, loss 0.312, accuracy 0.9``."""
    numbers = {name: value for name, value in frame["logs"].items() if value is not None}
    logs = [f"{name} {value:.4g}" for name, value in numbers.items()]
    return ", ".join([f"epoch {frame['epoch']} of {frame['epochs']}", *logs])


def which_step(trace: StepTrace) -> str:
    """What a step is of those that there were: ``median step``."""
    words = {"median": "median step", "last": "last step", "first": "first step of an epoch"}
    return words[trace.get("which", "last")]


def promise(frames: Sequence[Frame]) -> str:
    """What a plan has promised of the median step of a run, and how much longer that is: ``4.1 ms
    promised (+4%)``; else nothing."""
    promised, measured = promised_step_s(frames), median_step_s(frames)
    if promised is None or measured is None:
        return ""
    return f"{short_time(promised)} promised ({measured / promised - 1:+.0%})"


def joules(value: float) -> str:
    """An energy in three digits: 12.3 J, 4.56 kJ, 7.89 MJ."""
    for factor, unit in ((1e6, "MJ"), (1e3, "kJ")):
        if value >= 0.9995 * factor:
            return f"{three_digits(value / factor)} {unit}"
    return f"{three_digits(value)} J"


def three_digits(value: float) -> str:
    """0.0427, 4.27, 42.7, 1,234."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"
