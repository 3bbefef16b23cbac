"""What a plan says by the number of ranks: sentences, and a figure."""

import json

from tests.plan.test_by_ranks import rows_of
from tests.plan.test_prediction import planned
from tnt_notebook.dashboard.card.saved import PLOTLY
from tnt_notebook.dashboard.reports.plan_ranks import figure_bundle, growth, shape

ROWS = [
    {**row, "options": "", "limited_by": ""} for row in rows_of((8, 1), (4, 1), (0.9, 1), (0.8, 1))
]


def test_from_which_number_on_more_ranks_add_little():
    assert growth(ROWS, 8) == (
        "With batches of 8 samples, more ranks than 4 hardly help: twice as many add less than "
        "10%, since what a step takes beside its layers (Keras's loop, votes, the optimizer) "
        "remains, 56% of a step on 8. Larger batches use more ranks."
    )
    assert growth(ROWS[:2], 8) == (
        "With batches of 8 samples, more ranks help up to 2 at least: they would train 1.6 "
        "samples/s."
    )
    assert growth(ROWS[:1], 8) == ""


def test_how_ranks_share_the_work():
    whole = planned(ranks=1, micro_batches=1, begins=(), replicas=2)
    assert shape(planned(replicas=4)) == "4 replicas of a 2-stage pipeline"
    assert shape(planned()) == "a 2-stage pipeline" and shape(whole) == "2 whole copies"


def test_a_figure_has_a_point_and_a_bar_for_each_number():
    bundle = figure_bundle(ROWS, 2)
    assert len(json.dumps(bundle, allow_nan=False)) < 20_000
    assert bundle["text/plain"] == "Figure: samples per second on 1, 2, 4, 8 ranks."
    ideal, curve, asked, *bars = bundle[PLOTLY]["data"]
    assert [*curve["x"]] == [1, 2, 4, 8] and [*asked["x"]] == [2]
    assert [*asked["y"]] == [curve["y"][1]] and ideal["y"][-1] / ideal["y"][0] > 7.99
    assert curve["customdata"][1].startswith("2 ranks: 1.6 samples/s, 1.8 times one rank<br>whole")
    assert [bar["name"] for bar in bars] == ["work", "other"]
    ends = [base + x for base, x in zip(bars[1]["base"], bars[1]["x"], strict=True)]
    assert all(99.9 < end < 100.1 for end in ends)
