"""The table of a study of scaling: a row for each number of ranks and mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tnt_notebook.dashboard.figures.wording import joules, rate, short_time, three_digits
from tnt_notebook.telemetry.scaling import Question


def columns_of(
    table: Sequence[dict[str, Any]], asked: Question
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the table; columns of which nothing is known are left out."""
    solution = "time to solution" if asked.until is None else f"time to {asked.until}"
    estimate = " (estimate)" if any(row["energy"] == "estimate" for row in table) else ""
    missed = "-" if asked.until is None else "not reached"
    columns: dict[str, list[str]] = {
        "scaling": [row["mode"] for row in table],
        "ranks": [str(row["ranks"]) for row in table],
        "batch": [f"{row['batch']:,}" for row in table],
        "steps/s": [three_digits(row["steps_per_s"]) for row in table],
        "samples/s": [_spread(row, "samples_per_s", rate) for row in table],
        "efficiency": [_spread(row, "efficiency", "{:.0%}".format) for row in table],
        "planned": [_known(row["expected_efficiency"], "{:.0%}".format) for row in table],
        "epoch": [_known(row["epoch_s"], short_time) for row in table],
        solution: [_known(row["solution_s"], short_time, missed) for row in table],
        "first step": [short_time(row["first_step_s"]) for row in table],
        f"energy{estimate}": [_known(row["energy_j"], joules) for row in table],
        f"a sample{estimate}": [_known(row["joules_per_sample"], _of_a_sample) for row in table],
    }  # fmt: skip
    known = {name: cells for name, cells in columns.items() if {*cells} != {"-"}}
    return list(known), [list(row) for row in zip(*known.values(), strict=True)]


def _known(value: float | None, words: Any, unknown: str = "-") -> str:
    return unknown if value is None else str(words(value))


def _of_a_sample(value: float) -> str:
    """An energy that may be far below a joule."""
    if value >= 0.9995:
        return joules(value)
    milli = value >= 0.9995e-3
    return f"{three_digits(value * (1e3 if milli else 1e6))} {'mJ' if milli else 'µJ'}"


def _spread(row: dict[str, Any], what: str, words: Any) -> str:
    low, middle, high = (str(words(row[f"{end}{what}"])) for end in ("low_", "", "high_"))
    return middle if low == high else f"{middle} ({low} to {high})"
