"""Runs beside each other, in plotly.

::

    samples per second in all, over time            a line for each run
    loss, over time
    where a step goes        |  idle                a bar for each run
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook import telemetry
from tnt_notebook.dashboard.breakdown import COLOURS, MEANING, parts_of
from tnt_notebook.dashboard.figures import HEIGHT, MAX_POINTS
from tnt_notebook.dashboard.legend import lines_of, swatch, word
from tnt_notebook.dashboard.panels import GRID, OKABE_ITO, Panel, drawn, scale_of
from tnt_notebook.dashboard.step_layout import idle
from tnt_notebook.dashboard.wording import short_time
from tnt_notebook.telemetry import Frame, thinned
from tnt_notebook.telemetry.breakdown import NOTHING, mean

_NAME = 24  # characters
_DASHES = ("solid", "dash", "dot")


def figure_of(runs: Sequence[Sequence[Frame]], titles: Sequence[str]) -> go.Figure:
    """Runs beside each other; runs of the same title are numbered.

    Args:
        runs: of each the frames in order, at least one.
        titles: what each is called.
    """
    names = _names(titles)
    panels = [_over_time(runs, names)]
    if any(telemetry.breakdowns(run) for run in runs):
        panels.append(_breakdowns(runs, names))
    if any(telemetry.last_step(run) for run in runs):
        panels.append(_idle(runs, names))
    figure = drawn(panels, left=24 + 7 * max(map(len, names)))
    figure.update_layout(barmode="overlay")
    return figure


def _over_time(runs: Sequence[Sequence[Frame]], names: Sequence[str]) -> Panel:
    def draw(figure: go.Figure, row: int) -> None:
        for i, (name, run) in enumerate(zip(names, runs, strict=True)):
            seconds, rates = telemetry.throughput(thinned(list(run), MAX_POINTS))
            sharing = run[-1]["sharing"]
            figure.add_scatter(
                x=[round(second, 2) for second in seconds],
                y=[round(sum(now) / sharing, 1) for now in zip(*rates, strict=True)],
                name=name,
                mode="lines",
                line={"color": _colour(i), "dash": _dash(i), "width": 2},
                row=row,
                col=1,
            )
        figure.update_xaxes(title_text="seconds", row=row)
        figure.update_yaxes(rangemode="tozero", row=row)

    words = [
        word(name, _colour(i), "━" if _dash(i) == "solid" else "┅") for i, name in enumerate(names)
    ]
    return Panel([f"<b>samples per second in all</b><br>{lines_of(words, 90)}"], HEIGHT, draw)


def _breakdowns(runs: Sequence[Sequence[Frame]], names: Sequence[str]) -> Panel:
    means = [mean(telemetry.breakdowns(run) or [NOTHING]) for run in runs]
    unit, factor = scale_of(max(whole.step for whole in means))
    parts = parts_of(means)

    def draw(figure: go.Figure, row: int) -> None:
        base = [0.0] * len(means)
        for part in parts:
            seconds = [getattr(whole, part) for whole in means]
            figure.add_bar(
                y=list(names),
                base=[float(f"{factor * s:.5g}") for s in base],
                x=[float(f"{factor * s:.5g}") for s in seconds],
                name=part,
                orientation="h",
                width=0.7,
                marker={"color": COLOURS[part], "line": {"width": 0}},
                customdata=[
                    f"{short_time(s)}, {s / whole.step if whole.step else 0:.0%} of a step"
                    for s, whole in zip(seconds, means, strict=True)
                ],
                hovertemplate=f"%{{y}}: %{{customdata}}<br>{MEANING[part]}<extra>{part}</extra>",
                row=row,
                col=1,
            )
            base = [a + b for a, b in zip(base, seconds, strict=True)]
        figure.update_xaxes(range=[0, 1.03 * factor * max(base)], row=row)
        _bars(figure, row, unit)

    legend = lines_of((swatch(part, COLOURS[part]) for part in parts), 90)
    title = f"<b>where a step goes</b>, the mean of all ranks<br>{legend}"
    return Panel([title], 34 * len(runs), draw)


def _idle(runs: Sequence[Sequence[Frame]], names: Sequence[str]) -> Panel:
    steps = [telemetry.last_step(run) for run in runs]
    shares = [100 * idle(step)["bubble"] if step else None for step in steps]
    formulas = [100 * step["formula"] if step and "formula" in step else None for step in steps]

    def draw(figure: go.Figure, row: int) -> None:
        figure.add_bar(
            y=list(names),
            x=shares,
            name="idle",
            orientation="h",
            width=0.7,
            marker={"color": [_colour(i) for i in range(len(names))], "line": {"width": 0}},
            text=["" if share is None else f"  {share:.0f}%" for share in shares],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: idle for %{x:.1f}% of its last step<extra></extra>",
            row=row,
            col=1,
        )
        if any(formula is not None for formula in formulas):
            figure.add_scatter(
                y=list(names),
                x=formulas,
                name="by the formula",
                mode="markers",
                marker={
                    "symbol": "line-ns-open",
                    "size": 22,
                    "line": {"width": 2},
                    "color": "#999",
                },
                hovertemplate="%{y}: %{x:.1f}% by the formula of its schedule<extra></extra>",
                row=row,
                col=1,
            )
        _bars(figure, row, "%")
        top = max(share for share in [*shares, *formulas, 1.0] if share is not None)
        figure.update_xaxes(range=[0, 1.12 * top], row=row)

    by = "; a grey line: by the formula of the schedule" if any(formulas) else ""
    return Panel([f"<b>ranks do not compute</b> in the last step{by}"], 34 * len(runs), draw)


def _bars(figure: go.Figure, row: int, unit: str) -> None:
    figure.update_xaxes(title_text=unit, row=row)
    figure.update_yaxes(
        autorange="reversed", showgrid=False, linecolor=GRID, ticklabelstandoff=6, nticks=0, row=row
    )


def _names(titles: Sequence[str]) -> list[str]:
    short = [title if len(title) <= _NAME else f"{title[: _NAME - 1]}…" for title in titles]
    return [
        name if short.count(name) == 1 else f"{name} {short[: i + 1].count(name)}"
        for i, name in enumerate(short)
    ]


def _colour(i: int) -> str:
    return OKABE_ITO[i % len(OKABE_ITO)]


def _dash(i: int) -> str:
    return _DASHES[i // len(OKABE_ITO) % len(_DASHES)]
