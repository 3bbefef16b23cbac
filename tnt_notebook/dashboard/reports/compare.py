"""Runs beside each other, in plotly.

::

    samples per second of the latest steps, over time    a line for each run
    where a step goes                               a bar for each run
    ranks do not compute                            a bar for each run
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook import telemetry
from tnt_notebook.dashboard.figures.breakdown import panel_of
from tnt_notebook.dashboard.figures.figures import HEIGHT, MAX_POINTS
from tnt_notebook.dashboard.figures.panels import (
    Panel,
    add_line,
    drawn,
    lay_out_rows,
    line_of,
    lines_of,
    word,
)  # fmt: skip
from tnt_notebook.dashboard.figures.step_layout import idle
from tnt_notebook.dashboard.figures.wording import rate
from tnt_notebook.telemetry import Frame, thinned
from tnt_notebook.telemetry.breakdown import NOTHING, mean

_NAME = 24  # characters
_BAR = 34  # pixels


def figure_of(runs: Sequence[Sequence[Frame]], titles: Sequence[str]) -> go.Figure:
    """Runs beside each other; runs of the same title are numbered.

    Args:
        runs: of each the frames in order, at least one.
        titles: what each is called.
    """
    names = _names(titles)
    panels = [_over_time(runs, names)]
    breakdowns = [telemetry.breakdowns(run) for run in runs]
    if any(breakdowns):
        means = [mean(of_ranks or [NOTHING]) for of_ranks in breakdowns]
        panels.append(panel_of(", the mean of all ranks", names, means, _BAR * len(runs)))
    if any(telemetry.median_step(run) for run in runs):
        panels.append(_idle(runs, names))
    return drawn(panels, left=24 + 7 * max(map(len, names)))


def _over_time(runs: Sequence[Sequence[Frame]], names: Sequence[str]) -> Panel:
    def draw(figure: go.Figure, row: int) -> None:
        for i, (name, run) in enumerate(zip(names, runs, strict=True)):
            seconds, rates = telemetry.throughput(thinned(list(run), MAX_POINTS))
            sharing = run[-1]["sharing"]
            x = [round(second, 2) for second in seconds]
            y = [round(sum(now) / sharing, 1) for now in zip(*rates, strict=True)]
            add_line(figure, row, name, x, y, *line_of(i))
        figure.update_xaxes(title_text="seconds", row=row)
        figure.update_yaxes(rangemode="tozero", row=row)

    words = lines_of(
        word(f"{name} {rate(telemetry.samples_per_s(run))} while training", *line_of(i))
        for i, (name, run) in enumerate(zip(names, runs, strict=True))
    )
    title = f"<b>samples per second of the latest steps</b>, of all ranks<br>{words}"
    return Panel([title], HEIGHT, draw)


def _idle(runs: Sequence[Sequence[Frame]], names: Sequence[str]) -> Panel:
    steps = [telemetry.median_step(run) for run in runs]
    shares = [100 * idle(step)["bubble"] if step else None for step in steps]
    formulas = [100 * step["formula"] if step and "formula" in step else None for step in steps]

    def draw(figure: go.Figure, row: int) -> None:
        figure.add_bar(
            y=list(names), x=shares, name="idle", orientation="h", width=0.7,
            marker={"color": [line_of(i)[0] for i in range(len(names))], "line": {"width": 0}},
            text=["" if share is None else f"  {share:.0f}%" for share in shares],
            textposition="outside", cliponaxis=False,
            hovertemplate="%{y}: idle for %{x:.1f}% of its median step<extra></extra>", row=row,
            col=1,
        )  # fmt: skip
        if any(formula is not None for formula in formulas):
            line = {"symbol": "line-ns-open", "size": 22, "line": {"width": 2}, "color": "#999"}
            figure.add_scatter(
                y=list(names), x=formulas, name="by the formula", mode="markers", marker=line,
                hovertemplate="%{y}: %{x:.1f}% by the formula of its schedule<extra></extra>",
                row=row, col=1,
            )  # fmt: skip
        top = max(share for share in [*shares, *formulas, 1.0] if share is not None)
        lay_out_rows(figure, row, "%", 1.12 * top)

    by = "; a grey line: by the formula of the schedule" if any(formulas) else ""
    title = f"<b>ranks do not compute</b> in the median step{by}"
    return Panel([title], _BAR * len(runs), draw)


def _names(titles: Sequence[str]) -> list[str]:
    short = [title if len(title) <= _NAME else f"{title[: _NAME - 1]}…" for title in titles]
    return [
        name if short.count(name) == 1 else f"{name} {short[: i + 1].count(name)}"
        for i, name in enumerate(short)
    ]
