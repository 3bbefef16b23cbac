"""A figure of predicted against real figures, for the pages of the documentation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go

from tests.support.chromium import chromium
from tnt_notebook.dashboard.figures.panels import GREY, GRID, OKABE_ITO

_WIDTH, _HEIGHT = 760, 480
#: Of text and lines, on the pages of the documentation.
_INK = {"light": "#323232", "dark": "#ced6dd"}
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")

#: Of each group, pairs of a real and a predicted figure.
Groups = Mapping[str, Sequence[tuple[float, float]]]


def figure_of(groups: Groups, titles: tuple[str, str], theme: str) -> go.Figure:
    """A trace for each group, on logarithmic axes; grey: where both are equal, and 10 % beside
    that.

    Args:
        titles: of both axes.
        theme: "light" or "dark".
    """
    figure = go.Figure()
    every = [one for pairs in groups.values() for pair in pairs for one in pair]
    ends = [min(every) / 1.3, max(every) * 1.3]
    for factor, dash in ((1.0, "solid"), (1.1, "dot"), (1 / 1.1, "dot")):
        line = {"color": GREY, "width": 1, "dash": dash}
        ys = [factor * end for end in ends]
        figure.add_scatter(x=ends, y=ys, mode="lines", line=line, showlegend=False)
    for number, (name, pairs) in enumerate(groups.items()):
        xs, ys = zip(*pairs, strict=True)
        marker = {
            "symbol": _SYMBOLS[number % len(_SYMBOLS)],
            "color": OKABE_ITO[number % len(OKABE_ITO)],
            "size": 8,
        }
        figure.add_scatter(x=xs, y=ys, mode="markers", name=name, marker=marker)
    ticks = [t for n in range(-3, 7) for t in (10**n, 2 * 10**n, 5 * 10**n)]
    shown = [tick for tick in ticks if ends[0] <= tick <= ends[1]]
    axis = {"type": "log", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}
    axis |= {"gridcolor": GRID, "zeroline": False}
    figure.update_xaxes(title_text=titles[0], **axis)
    figure.update_yaxes(title_text=titles[1], **axis)
    figure.update_layout(
        width=_WIDTH, height=_HEIGHT, margin={"l": 60, "r": 10, "t": 10, "b": 50},
        font={"family": "sans-serif", "color": _INK[theme]}, paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )  # fmt: skip
    return figure


def written(groups: Groups, titles: tuple[str, str], folder: Path, name: str) -> None:
    """``name-light.png`` and ``name-dark.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        for theme in _INK:
            figure = figure_of(groups, titles, theme)
            html = figure.to_html(include_plotlyjs=True, config={"staticPlot": True})
            page.set_content(html.replace("<body>", '<body style="margin:0">'))
            plot = page.locator(".js-plotly-plot")
            plot.wait_for()
            plot.screenshot(path=folder / f"{name}-{theme}.png", omit_background=True)
