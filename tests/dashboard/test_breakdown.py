"""The figure of where a step goes."""

from __future__ import annotations

import json

from tnt_notebook.dashboard.breakdown import MOST_ROWS, figure_of
from tnt_notebook.telemetry import Breakdown

STEP = Breakdown(input=0.001, work=0.008, wait=0.0, exchange=0.002, other=0.0005)


def test_a_row_for_each_rank_and_a_colour_for_each_part_that_there_is():
    figure = figure_of([STEP, STEP._replace(work=0.010, exchange=0.0)], "Rank 1 is slow. " * 20)
    bars = {bar.name: list(bar.x) for bar in figure.data}
    assert bars == {"input": [1, 1], "work": [8, 10], "exchange": [2, 0], "other": [0.5, 0.5]}
    assert list(figure.data[0].y) == ["rank 0", "rank 1"]
    assert figure.layout.xaxis.title.text == "ms"
    title = figure.layout.title.text.split("<br>")
    assert len(title) == 5 and max(map(len, title)) < 130 and "Rank 1 is slow." in title[1]


def test_of_many_ranks_some_stand_for_all():
    figure = figure_of([STEP] * 1024, "")
    rows = list(figure.data[0].y)
    assert len(rows) == MOST_ROWS
    assert (rows[0], rows[-1]) == ("rank 0", "rank 1023")
    assert f"1,024 ranks, {MOST_ROWS} of them shown" in figure.layout.title.text
    assert len(json.dumps(figure.to_plotly_json(), default=list)) < 60_000
