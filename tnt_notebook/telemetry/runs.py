"""Tells the runs of one cell apart: a cell may fit, then evaluate, or predict within a callback."""

from __future__ import annotations

from collections.abc import Sequence

from tnt_notebook.telemetry.frame import Frame


def runs(frames: Sequence[Frame]) -> list[list[Frame]]:
    """The frames of each run, runs in the order in which they began."""
    by_start: dict[float, list[Frame]] = {}
    for frame in frames:
        by_start.setdefault(frame["start"], []).append(frame)
    return [by_start[start] for start in sorted(by_start)]


def main_run(frames: Sequence[Frame]) -> list[Frame]:
    """The frames of the run a person asks about first: the last fit, else the last run."""
    all_runs = runs(frames)
    fits = [run for run in all_runs if run[-1]["phase"] == "fit"]
    return (fits or all_runs or [[]])[-1]
