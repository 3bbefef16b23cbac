"""The figure of all published points: predicted against published, on both axes samples a second
over those of the point that it was predicted from."""

from pathlib import Path

import plotly.graph_objects as go

from tests.benchmarks.published.prediction import Predicted
from tests.benchmarks.published.systems import System
from tests.support.chromium import chromium

_WIDTH, _HEIGHT = 760, 480
#: Of text and lines, on the pages of the documentation.
_INK = {"light": "#323232", "dark": "#ced6dd"}
_GREY = "#888888"
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
_OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")


def figure_of(found: dict[System, list[Predicted]], theme: str) -> go.Figure:
    """A trace for each machine; grey: where predicted is published, and 10 % beside that."""
    figure = go.Figure()
    ends = [1.0, 80.0]
    for factor, dash in ((1.0, "solid"), (1.1, "dot"), (1 / 1.1, "dot")):
        line = {"color": _GREY, "width": 1, "dash": dash}
        ys = [factor * end for end in ends]
        figure.add_scatter(x=ends, y=ys, mode="lines", line=line, showlegend=False)
    by_machine: dict[str, list[tuple[float, float]]] = {}
    for system, points in found.items():
        first = system.points[0].throughput
        machine = system.name.split(",")[0]
        own = [(one.point.throughput / first, one.throughput / first) for one in points]
        by_machine.setdefault(machine, []).extend(own)
    for number, (machine, own) in enumerate(by_machine.items()):
        xs, ys = zip(*own, strict=True)
        marker = {
            "symbol": _SYMBOLS[number % len(_SYMBOLS)],
            "color": _OKABE_ITO[number % len(_OKABE_ITO)],
            "size": 8,
        }
        figure.add_scatter(x=xs, y=ys, mode="markers", name=machine, marker=marker)
    axis = {"type": "log", "range": [0, 1.9], "tickvals": [1, 2, 4, 8, 16, 32, 64]}
    axis |= {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False}
    figure.update_xaxes(title_text="published, times the first point", **axis)
    figure.update_yaxes(title_text="predicted, times the first point", **axis)
    figure.update_layout(
        width=_WIDTH, height=_HEIGHT, margin={"l": 60, "r": 10, "t": 10, "b": 50},
        font={"family": "sans-serif", "color": _INK[theme]}, paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )  # fmt: skip
    return figure


def written(found: dict[System, list[Predicted]], folder: Path) -> None:
    """``published-light.png`` and ``published-dark.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        for theme in _INK:
            figure = figure_of(found, theme)
            html = figure.to_html(include_plotlyjs=True, config={"staticPlot": True})
            page.set_content(html.replace("<body>", '<body style="margin:0">'))
            plot = page.locator(".js-plotly-plot")
            plot.wait_for()
            plot.screenshot(path=folder / f"published-{theme}.png", omit_background=True)
