"""The upper deck of the card as it stood at the end, in HTML: what each rank did over the run.

``widgets/paint_run.js`` paints the same on a canvas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape

from tnt_notebook.dashboard.card.elements import div, entry, row, span
from tnt_notebook.dashboard.card.meter_picture import meter_rows
from tnt_notebook.dashboard.card.time_summary import time_summary
from tnt_notebook.dashboard.figures.panels import line_of
from tnt_notebook.dashboard.figures.wording import clock, number
from tnt_notebook.telemetry import Breakdown, Frame, epoch_rows, main_run
from tnt_notebook.telemetry.activities import DOING, LETTER, Ribbon
from tnt_notebook.telemetry.analysis import median_step_s
from tnt_notebook.telemetry.sampling import spread, thinned
from tnt_notebook.telemetry.step_trace import replicas

MOST_ROWS = 16
MOST_LOOKS = 60  # a box each in a row, 20 bytes
MOST_POINTS = 200  # of a curve
WIDTH = 2000  # units of a row: half a pixel of most screens
_ROW, _CURVES = 14, 92

Look = tuple[float, str]
"""Seconds since the run began, and a digit for each rank: how busy it is."""


def run_html(ribbon: Ribbon, frames: Sequence[Frame]) -> str:
    """Loss and metrics, and below them a row for each rank, and for each meter; at most 130 kB.

    Args:
        frames: of all runs of the cell.
    """
    if not ribbon.ranks or ribbon.seconds <= 0:
        return ""
    every = rows_of(sorted(ribbon.ranks), frames)
    shown = [every[i] for i in spread(len(every), MOST_ROWS)]
    looks = looks_of(frames, ribbon.began)
    rows = [row(name, _svg(ribbon, ranks, looks), "share", "") for name, ranks in shown]
    rows += meter_rows(ribbon)
    there = {letter for rank in ribbon.ranks for letter, _, _ in entries_of(ribbon, rank)}
    legend = [
        entry(d.words, d.colour, line=d.line) for letter, d in DOING.items() if letter in there
    ]
    what = "pipelines" if len(every) < len(ribbon.ranks) else "ranks"
    some = f"{len(shown)} of {len(every)} {what} shown" if len(shown) < len(every) else ""
    ends = div("line tnt-caption", span("first", "0:00"), span("last", clock(ribbon.seconds)))
    said = time_summary(ribbon, median_step_s(main_run(frames)))
    return div(
        "run",
        f'<p class="tnt-time-summary">{escape(said)}</p>',
        *_curves(frames, ribbon),
        div("steps", *rows, row("", div("axis", _ticks(frames, ribbon), ends), "share", "")),
        div("legend", *legend),
        div("caption", some) if some else "",
    )


def rows_of(ranks: Sequence[int], frames: Sequence[Frame]) -> list[tuple[str, Sequence[int]]]:
    """A row for each rank, with its name; of many ranks for each pipeline, where there are any."""
    steps = (frame["step_trace"] for frame in reversed(frames) if "step_trace" in frame)
    pipelines = replicas(step) if (step := next(steps, None)) else []
    if len(ranks) > MOST_ROWS and sum(map(len, pipelines)) == len(ranks):
        return [(f"pipeline {number}", own) for number, own in enumerate(pipelines)]
    return [(f"rank {rank}", [rank]) for rank in ranks]


def busy(frame: Frame) -> str:
    """How much of a step each rank works, a digit each, 9 for all of it; empty where the frame does
    not say it."""
    of_ranks = (Breakdown(*seconds) for seconds in frame.get("breakdown", []))
    return "".join(str(min(9, int(10 * b.work / b.step)) if b.step else 0) for b in of_ranks)


def looks_of(frames: Sequence[Frame], began: float) -> list[Look]:
    """When it was seen how busy ranks are; not more than :data:`MOST_LOOKS`."""
    seen = [(frame["time"] - began, busy(frame)) for frame in frames]
    return thinned([look for look in seen if look[1]], MOST_LOOKS)


def entries_of(ribbon: Ribbon, rank: int) -> Iterator[tuple[str, float, float]]:
    """What a rank did, one after the other, from the begin to the end of a run: letter, and seconds
    since it began."""
    own = ribbon.ranks[rank]
    begins = [max(0.0, at - ribbon.began) for at in own.begins]
    if begins[0] > 0:
        yield LETTER["start"], 0.0, begins[0]
    yield from zip(own.doing, begins, [*begins[1:], max(ribbon.seconds, begins[-1])], strict=True)


def stretches_of(
    looks: Sequence[Look], rank: int, begin: float, end: float
) -> Iterator[tuple[float, float, float]]:
    """Training in stretches in which a rank is alike busy, 0 to 1; 1 where nobody looked. A look
    tells of the time before it; the last one of that after it, too."""
    at, part = begin, 1.0
    for seconds, digits in looks:
        part = (int(digits[rank]) + 0.5) / 10 if rank < len(digits) else 1.0
        if begin < seconds < end:
            yield at, seconds, part
            at = seconds
        elif seconds >= end:
            break
    yield at, end, part


def _svg(ribbon: Ribbon, ranks: Sequence[int], looks: Sequence[Look]) -> str:
    """A row; all of a colour are one path. Of ranks that share a row what they seldom do lies over
    what they do most of the time."""
    paths: dict[tuple[str, float], str] = defaultdict(str)

    def draw(letter: str, opacity: float, begin: float, end: float) -> None:
        x, right = (round(WIDTH * at / ribbon.seconds) for at in (begin, end))
        y, height = (6, 3) if DOING[letter].line else (0, _ROW)
        width = max(1, right - x)
        paths[letter, round(opacity, 2)] += f"M{x} {y}h{width}v{height}h-{width}"

    train = LETTER["train"]
    for rank in ranks:
        for letter, begin, end in entries_of(ribbon, rank):
            if letter != train:
                draw(letter, 1.0, begin, end)
                continue
            for since, until, part in stretches_of(looks, rank, begin, end):
                draw(letter, 0.3 + 0.7 * part, since, until)
    drawn = "".join(
        f'<path fill="{DOING[letter].colour}" opacity="{opacity:g}" d="{paths[letter, opacity]}"/>'
        for letter, opacity in sorted(paths, key=lambda path: path[0] != train)
    )
    sharp = 'preserveAspectRatio="none" shape-rendering="crispEdges" aria-hidden="true"'
    return f'<svg viewBox="0 0 {WIDTH} {_ROW}" {sharp}>{drawn}</svg>'


def _ticks(frames: Sequence[Frame], ribbon: Ribbon) -> str:
    """A stroke at the end of each epoch."""
    run = main_run(frames)
    ends = _epoch_ends(run, ribbon)
    at = [ends[int(row["epoch"] or 0)] for row in epoch_rows(run)]
    strokes = "".join(f"M{round(WIDTH * seconds / ribbon.seconds)} 0v7" for seconds in at)
    look = 'stroke="currentColor" vector-effect="non-scaling-stroke"'
    whole_row = 'preserveAspectRatio="none" aria-hidden="true"'
    return f'<svg viewBox="0 0 {WIDTH} {_ROW}" {whole_row}><path {look} d="{strokes}"/></svg>'


def _epoch_ends(run: Sequence[Frame], ribbon: Ribbon) -> dict[int, float]:
    """When each epoch had its last frame, in seconds since the run began; of epochs without one,
    its end."""
    seen = {frame["epoch"]: frame["time"] - ribbon.began for frame in run}
    return defaultdict(lambda: ribbon.seconds, seen)


def _curves(frames: Sequence[Frame], ribbon: Ribbon) -> list[str]:
    """Loss and metrics of the main run over time, each on a scale of its own; validation dashed."""
    began, whole = ribbon.began, ribbon.seconds
    run = main_run(frames)
    some = [frame for frame in thinned(list(run), MOST_POINTS) if frame["logs"]]
    names = list(some[-1]["logs"]) if some else []
    ends = _epoch_ends(run, ribbon)
    drawn, words = [], []
    for index, name in enumerate(names):
        points = [(frame["time"] - began, frame["logs"].get(name)) for frame in some]
        checked = [
            (ends[int(row["epoch"] or 0)], row.get(f"val_{name}")) for row in epoch_rows(run)
        ]
        there = [value for _, value in (*points, *checked) if value is not None]
        if not there:
            continue
        low, high = min(there), max(there)
        colour, _ = line_of(index)

        def place(seconds: float, value: float, low: float = low, high: float = high) -> str:
            height = (value - low) / (high - low) if high > low else 0.5
            return f"{WIDTH * seconds / whole:.0f} {_CURVES - 4 - height * (_CURVES - 8):.1f}"

        line = "L".join(place(seconds, value) for seconds, value in points if value is not None)
        look = (
            f'fill="none" stroke="{colour}" stroke-width="1.5" vector-effect="non-scaling-stroke"'
        )
        drawn.append(f'<path {look} d="M{line}"/>')
        if dashes := "L".join(place(at, value) for at, value in checked if value is not None):
            drawn.append(f'<path {look} stroke-dasharray="4 3" d="M{dashes}"/>')
        title = f"{escape(name.replace('_', ' '))} {number(low)} to {number(high)}"
        words.append(entry(title, colour, line=True))
    if not drawn:
        return []
    whole_row = 'preserveAspectRatio="none" aria-hidden="true"'
    svg = f'<svg viewBox="0 0 {WIDTH} {_CURVES}" {whole_row}>{"".join(drawn)}</svg>'
    return [div("curves", row("", svg, "share", "")), div("legend", *words)]
