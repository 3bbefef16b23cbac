"""The boxes of a run as a table: a row a box; and its meters: a row a second and rank."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tnt_notebook.telemetry.curves import curves_of, meters_in
from tnt_notebook.telemetry.frame import Frame
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import Box, StepTrace, boxes, words_of


class BoxRow(NamedTuple):
    """A box; times in seconds since the run began.

    Attributes:
        step: which of the step traces, from 0.
        kind, what: a letter, and what it stands for; of a conversion what it does.
        stage: of a forward or backward; of a send or a wait for a message: the other rank.
        number: of the micro-batch, or which message to that rank, or exchange of the step.
    """

    step: int
    rank: int
    kind: str
    what: str
    stage: int
    number: int
    begin_s: float
    end_s: float
    duration_s: float


def box_rows(steps: Iterable[StepTrace], began: float) -> Iterator[BoxRow]:
    """All boxes, step by step and rank by rank.

    Args:
        began: Unix time at which the run began.
    """
    for number, step in enumerate(steps):
        shift = step["time"] - began
        for box in boxes(step):
            yield BoxRow(
                number, box.rank, box.kind, _what(box, step), box.stage, box.number,
                shift + box.begin, shift + box.end, box.end - box.begin,
            )  # fmt: skip


def _what(box: Box, step: StepTrace) -> str:
    return words_of(box, step) if box.kind == "V" else BOX_KINDS[box.kind].words


def meter_rows(frames: Iterable[Frame], began: float) -> Iterator[dict[str, float | None]]:
    """What each rank measured, by the names of the meters that there are.

    Args:
        began: Unix time at which the run began.
    """
    curves = curves_of(list(frames))
    there = meters_in(curves)
    for second, by_letter in sorted(curves.at.items()):
        for rank in range(max(map(len, by_letter.values()))):
            numbers: dict[str, float | None] = {}
            for meter in there:
                own = by_letter.get(meter.letter, [])
                numbers[meter.name] = own[rank] if rank < len(own) else None
            if any(number is not None for number in numbers.values()):
                yield {"time_s": second - began, "rank": rank, **numbers}


def write_csv(path: Path, rows: Iterable[BoxRow]) -> None:
    """The table as a file of comma-separated values, with a line of names on top."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(BoxRow._fields)
        for *which, begin, end, duration in rows:
            writer.writerow([*which, *(f"{seconds:.9f}" for seconds in (begin, end, duration))])
