"""A sweep in HTML and in words: the same while it runs and in what is saved.

::

    digits   running                                   [Stop all]
    7 of 20 trials, 2 run   best val_accuracy 0.9722: trial 3, rate 0.012, width 128
    trial  rate   width  state     epoch  val_accuracy  step    ranks
        3  0.012  128    complete  10/10  0.9722        2.1 ms  0-1
        6  0.003  64     running    4/10  0.9510        2.0 ms  2-3   [stop]
    parallel coordinates
"""

from __future__ import annotations

import math
from html import escape
from typing import Any

from tnt_notebook.dashboard.card.elements import div, span
from tnt_notebook.dashboard.figures.wording import clock, number, plural, short_time
from tnt_notebook.sweep.board import Axis, Board, Row, TrialState, axes_of

#: Rows and lines that are drawn; of more trials those that run, the best, and the latest.
MOST_ROWS, MOST_LINES = 40, 300
_WIDTH, _HEIGHT, _BESIDE, _ABOVE, _BENEATH = 820, 190, 60, 26, 12


def ranks_in_short(ranks: Any) -> str:
    """``0-1``, or ``0, 2``."""
    found = sorted(ranks)
    if len(found) > 1 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}-{found[-1]}"
    return ", ".join(map(str, found))


def value_in_short(value: Any) -> str:
    """A value of a setting."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def reached_in_short(value: float | None) -> str:
    """A value of the objective."""
    return "-" if value is None else number(value if math.isfinite(value) else None)


def headline(board: Board) -> str:
    """How far it is, and the best so far, in a line."""
    ended = len(board.rows) - board.count("running") - board.count("cut off")
    parts = [f"{ended} of {plural(board.wanted, 'trial')} ended"]
    if running := board.count("running"):
        parts.append(f"{running} running")
    states: tuple[TrialState, ...] = ("pruned", "stopped", "cut off", "failed")
    for state in states:
        if count := board.count(state):
            parts.append(f"{count} {state}")
    return ", ".join(parts)


def best_line(board: Board) -> str:
    """The best so far; empty as long as there is none."""
    best = board.best
    if best is None:
        return ""
    settings = ", ".join(f"{n} {value_in_short(v)}" for n, v in best.settings.items())
    value = reached_in_short(best.value)
    return f"best {board.objective.name} {value}: trial {best.number}, {settings}"


def words(board: Board) -> str:
    """All of it as text."""
    heads = _heads(board)
    lines = [heads, *(_cells(row) for row in board.shown(MOST_ROWS))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    ]
    first = f"{board.title}: {board.state}, {headline(board)} in {clock(board.seconds)}"
    failed = [f"trial {row.number}: {row.error}" for row in board.rows if row.error]
    said = [first, *filter(None, [best_line(board), board.error]), *board.notes]
    parts = [said, table if board.rows else [], failed]
    return "\n\n".join("\n".join(part) for part in parts if part)


def inside(board: Board, stops: bool) -> str:
    """What is inside the card, below its header.

    Args:
        stops: whether there are buttons that stop trials.
    """
    left_out = len(board.rows) - min(len(board.rows), MOST_ROWS)
    more = f"{plural(left_out, 'more trial')}: {board.title}.frame()" if left_out else ""
    parts = [
        div("line", span("where", headline(board)), span("when", clock(board.seconds))),
        div("best", escape(best_line(board))) if board.best else "",
        f'<p class="tnt-error">{escape(board.error)}</p>' if board.error else "",
        *(div("caption", escape(note)) for note in board.notes),
        _table(board, stops) if board.rows else "",
        div("caption", escape(more)) if more else "",
        coordinates(board),
    ]
    return "".join(parts)


def still(board: Board) -> str:
    """All of the card, as it stays."""
    head = (
        f'<div class="tnt-header"><div class="tnt-title" role="heading" aria-level="3">'
        f'{escape(board.title)}</div><span class="tnt-pill" data-state="{board.state}">'
        f"{board.state}</span></div>"
    )
    return f'{head}<div class="tnt-sweep">{inside(board, stops=False)}</div>'


def _heads(board: Board) -> list[str]:
    return ["trial", *board.space, "state", "epoch", board.objective.name, "step", "ranks"]


def _cells(row: Row) -> list[str]:
    epochs = f"{row.epoch}/{row.epochs}" if row.epochs else "-"
    return [
        str(row.number), *(value_in_short(value) for value in row.settings.values()), row.state,
        epochs, reached_in_short(row.value),
        "-" if row.step_s is None else short_time(row.step_s), ranks_in_short(row.ranks) or "-",
    ]  # fmt: skip


def _table(board: Board, stops: bool) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in _heads(board))
    best = board.best
    lines = []
    for row in board.shown(MOST_ROWS):
        cells = "".join(f"<td>{escape(text)}</td>" for text in _cells(row))
        button = "<td></td>" if stops else ""
        if stops and row.state == "running":
            button = (
                "<td>"
                f'<button type="button" class="tnt-tool" data-trial="{row.number}" '
                f'aria-label="Stop trial {row.number}">stop</button></td>'
            )
        marks = f' data-state="{row.state}"'
        marks += ' class="tnt-is-best"' if best and row.number == best.number else ""
        why = f' title="{escape(row.error)}"' if row.error else ""
        lines.append(f"<tr{marks}{why}>{cells}{button}</tr>")
    head += "<td></td>" if stops else ""
    body = "".join(lines)
    return div("trials", f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def coordinates(board: Board) -> str:
    """Parallel coordinates: a line for each trial through its settings and what came of them."""
    axes = axes_of(board)
    rows = [row for row in board.shown(MOST_LINES) if row.value is not None]
    if not rows:
        return ""
    step = (_WIDTH - 2 * _BESIDE) / max(1, len(axes) - 1)
    best = board.best
    # The best is drawn last, over the others.
    drawn = sorted(rows, key=lambda row: best is not None and row.number == best.number)
    lines = []
    for row in drawn:
        values = [*row.settings.values(), row.value]
        places = [axis.place(value) for axis, value in zip(axes, values, strict=True)]
        points = " ".join(
            f"{_BESIDE + i * step:.1f},{_y(place):.1f}"
            for i, place in enumerate(places)
            if place is not None
        )
        kind = "best" if best is not None and row.number == best.number else row.state
        lines.append(f'<polyline class="tnt-way" data-state="{kind}" points="{points}"/>')
    bars = [_bar(axis, _BESIDE + i * step) for i, axis in enumerate(axes)]
    label = escape(f"Parallel coordinates of {plural(len(rows), 'trial')}")
    return (
        f'<svg class="tnt-coordinates" role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} '
        f'{_HEIGHT + _ABOVE + _BENEATH}">{"".join(lines)}{"".join(bars)}</svg>'
    )


def _y(place: float) -> float:
    return _ABOVE + (1 - place) * _HEIGHT


def _bar(axis: Axis, x: float) -> str:
    ticks = "".join(
        f'<text class="tnt-tick" x="{x + 5:.1f}" y="{_y(place) + 4:.1f}">'
        f"{escape(value_in_short(value))}</text>"
        for place, value in axis.ticks
    )
    return (
        f'<line class="tnt-axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_ABOVE}" y2="{_ABOVE + _HEIGHT}"/>'
        f'<text class="tnt-axis-name" x="{x:.1f}" y="14">{escape(axis.name)}</text>{ticks}'
    )
