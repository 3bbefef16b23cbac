"""What is shown of a sweep, live and in what is saved."""

import re

from tnt_notebook.dashboard.card.sweep_picture import MOST_ROWS, inside, words
from tnt_notebook.dashboard.card.sweep_view import still_bundle
from tnt_notebook.dashboard.figures.sweep_figure import figure_of
from tnt_notebook.sweep.board import Board, Row
from tnt_notebook.sweep.space import Choice, Objective, Range

SPACE = {"rate": Range(1e-4, 1e-1, log=True), "act": Choice(("relu", "<tanh>"))}
ROWS = (
    Row(0, {"rate": 0.01, "act": "relu"}, "complete", [0, 1], 5, 5, 0.91, 0.002, 12.0),
    Row(1, {"rate": 0.1, "act": "<tanh>"}, "complete", [2, 3], 5, 5, 0.95, 0.002, 12.0),
    Row(2, {"rate": 0.001, "act": "relu"}, "pruned", [0, 1], 2, 5, 0.4, 0.002, 4.0),
    Row(3, {"rate": 0.02, "act": "relu"}, "failed", [2], error="rank 2 died on <vm>."),
    Row(4, {"rate": 0.02, "act": "relu"}, "running", [0, 2], 1, 5, 0.99),
)


def board(rows=ROWS, **more) -> Board:
    objective = Objective("val_accuracy", maximise=True)
    return Board("digits", "running", objective, SPACE, 20, rows, seconds=63.0, **more)


def test_the_best_is_one_that_has_ended():
    best = board().best
    assert (best.number, best.value) == (1, 0.95)
    assert Board("a", "running", Objective("loss", False), SPACE, 9, ROWS).best.number == 0
    assert board(()).best is None


def test_all_of_it_in_words():
    text = words(board(notes=["rank 2 was started again."]))
    assert "digits: running, 4 of 20 trials ended, 1 running, 1 pruned, 1 failed in 1:03" in text
    assert "best val_accuracy 0.9500: trial 1, rate 0.1, act <tanh>" in text
    assert re.search(r"2  0\.001 +relu +pruned +2/5 +0\.4000 +2 ms +0-1\n", text)
    assert re.search(r"0\.9900 +- +0, 2\n", text)
    assert "rank 2 was started again." in text and "trial 3: rank 2 died on <vm>." in text


def test_the_card_has_a_row_a_trial_and_buttons_while_it_runs():
    html = inside(board(), stops=True)
    assert html.count("<tr") == 1 + len(ROWS)
    assert re.findall(r'data-trial="(\d)"', html) == ["4"]
    assert 'class="tnt-is-best"' in html and "&lt;tanh&gt;" in html and "<tanh>" not in html
    assert html.count("<polyline") == 4  # one has no value
    assert "data-trial" not in inside(board(), stops=False)


def test_a_still_shows_words_where_its_style_is_stripped():
    html = still_bundle(board(error="rank 0: ValueError"))["text/html"]
    assert 'hidden="hidden"' in html and '<pre class="tnt-words">digits: running' in html
    assert "<button" not in html and '<p class="tnt-error">rank 0: ValueError</p>' in html


def test_of_very_many_trials_the_running_the_best_and_the_latest_are_drawn():
    many = [Row(n, {"rate": 0.01, "act": "relu"}, "complete", [0], 1, 1, -n) for n in range(1000)]
    running = Row(1000, {"rate": 0.01, "act": "relu"}, "running", [0])
    shown = [row.number for row in board([*many, running]).shown(MOST_ROWS)]
    assert len(shown) == MOST_ROWS and shown == sorted(shown)
    assert {0, 1, 2, 998, 999, 1000} <= {*shown} and 500 not in shown
    assert len(inside(board([*many, running]), stops=True)) < 60_000


def test_parallel_coordinates_for_plotly():
    rate, act, objective = figure_of(board()).data[0].dimensions
    assert (rate.label, rate.range) == ("rate", (-4, -1))
    assert list(rate.values) == [-2, -1, -3, -1.699] and "0.01" in rate.ticktext
    assert (list(act.values), list(act.ticktext)) == ([0, 1, 0, 0], ["relu", "<tanh>"])
    assert list(objective.values) == [0.91, 0.95, 0.4, 0.99]
    assert not figure_of(board(())).data[0].dimensions[-1]["values"]
