"""The still pictures of the run and of a step."""

import re
from xml.etree import ElementTree

import pytest

from tests.dashboard.runs import frames_of_a_run
from tests.dashboard.steps import step_of_a_pipeline
from tnt_notebook import telemetry
from tnt_notebook.dashboard.card.picture import MOST_ROWS, WIDTH, step_html
from tnt_notebook.dashboard.card.run_picture import entries_of, run_html, stretches_of
from tnt_notebook.dashboard.card.saved import summary_bundle
from tnt_notebook.telemetry import Breakdown
from tnt_notebook.telemetry.activities import DOING, LETTER, Activities, Ribbon, add
from tnt_notebook.telemetry.kept_ribbon import ribbon_of


def paths(svg: ElementTree.Element) -> list[str]:
    return [path.get("d", "") for path in svg.iter("path")]


def test_a_box_for_each_of_the_step_in_its_place():
    trace = step_of_a_pipeline()  # 11 times 2.8 ms
    root = ElementTree.fromstring(step_html(trace))
    rows = list(root.iter("svg"))
    assert [sum(d.count("M") for d in paths(row)) for row in rows] == [16] * 4
    forward = next(d for d in paths(rows[3]) if d.startswith("M"))
    assert float(forward[1:].split()[0]) == pytest.approx(WIDTH * 3 / 30.8, abs=1)
    text = "".join(root.itertext())
    assert text.startswith("Last step 30.8 ms · idle 27%, by the formula of 1f1b 27%")
    assert text.count("27% idle") == 4


@pytest.mark.parametrize("micro_batches", [8, 64, pytest.param(400, marks=pytest.mark.thorough)])
def test_it_stays_small_and_shows_some_of_many_ranks(micro_batches):
    step = step_of_a_pipeline("zb-v", 4, micro_batches, around=True, message=1e-4, replicas=8)
    html = step_html(step)
    assert len(html) < 60_000
    ranks = re.findall(r"rank (\d+)<", html)
    assert ranks[0] == "0" and len(ranks) <= MOST_ROWS


def test_the_summary_has_the_last_step_and_does_without():
    frames = frames_of_a_run(4)
    assert telemetry.median_step(frames) is None
    html = summary_bundle("MLP", 4, frames, "finished", None, ribbon_of(frames))["text/html"]
    assert "Last step" not in html
    frames[3]["step_trace"] = step_of_a_pipeline("gpipe")
    frames[5]["step_trace"] = step_of_a_pipeline("1f1b")
    html = summary_bundle("MLP", 4, frames, "finished", None, ribbon_of(frames))["text/html"]
    assert "by the formula of 1f1b" in html


def ribbon(ranks: int = 2) -> Ribbon:
    """Of 10 s from 0: import, trace, train; rank 1 waits at the end."""
    made = Ribbon(0.0, 10.0)
    for rank in range(ranks):
        doing, begins = ("ictw", [1.0, 3.0, 4.0, 9.0]) if rank == 1 else ("ict", [1.0, 3.0, 4.0])
        add(made, Activities(rank=rank, doing=doing, begins=begins, seconds={}))
    return made


def test_what_each_rank_did_over_the_run_in_its_place():
    frames = frames_of_a_run(2)
    root = ElementTree.fromstring(run_html(ribbon(), frames))
    curves, first, second, ticks = root.iter("svg")
    assert paths(first) == [
        "M800 0h1200v14h-1200", "M0 0h200v14h-200", "M200 0h400v14h-400", "M600 0h200v14h-200",
    ]  # fmt: skip
    assert paths(second)[-1] == "M1800 6h200v3h-200"
    assert len(paths(curves)) == 4  # loss and accuracy, and their validation
    assert paths(ticks) == ["M700 0v7M1200 0v7M1700 0v7"]  # three epochs
    words = "".join(root.itertext())
    for said in ("training 6 s", "loss", "waiting for a rank", "0:10"):
        assert said in words


def test_the_legend_of_the_run_has_all_that_is_drawn_as_it_is_drawn():
    root = ElementTree.fromstring(run_html(ribbon(), frames_of_a_run(2)))
    drawn = {path.get("fill") for svg in list(root.iter("svg"))[1:3] for path in svg.iter("path")}
    *boxes, wait = (one for one in root.iter("i") if f"{one.get('style')}"[12:19] in drawn)
    shown = [f"{one.get('style')}"[12:19] for one in (*boxes, wait)]
    assert set(shown) == drawn and shown[0] == DOING[LETTER["start"]].colour
    assert {one.get("class") for one in boxes} == {"tnt-letter"}
    assert wait.get("class") == "tnt-stroke"


def test_training_is_the_paler_the_less_busy_a_rank_is():
    looks = [(5.0, "90"), (6.0, "92")]
    assert list(stretches_of(looks, 0, 4.0, 9.0)) == [(4, 5, 0.95), (5, 6, 0.95), (6, 9, 0.95)]
    assert list(stretches_of(looks, 1, 4.0, 9.0)) == [(4, 5, 0.05), (5, 6, 0.25), (6, 9, 0.25)]
    busy = Breakdown(0.001, 0.009, 0.0, 0.0, 0.0, 0.0)
    html = run_html(ribbon(), frames_of_a_run(breakdown=(busy, busy._replace(work=0.0))))
    opacities = re.findall(r'fill="#0072b2" opacity="([\d.]+)"', html)
    assert opacities == ["0.96", "0.33"]


def test_a_rank_starts_until_it_says_more():
    assert next(entries_of(ribbon(), 0)) == ("s", 0.0, 1.0)
    assert run_html(Ribbon(0.0, 10.0), []) == ""


def test_of_many_ranks_some_are_shown():
    html = run_html(ribbon(64), frames_of_a_run(64))
    assert "16 of 64 ranks shown" in html and len(html) < 100_000


def test_many_ranks_are_grouped_by_pipeline_and_stage():
    step = step_of_a_pipeline(replicas=16)  # of 4 ranks
    shown = [int(rank) for rank in re.findall(r"rank (\d+)<", step_html(step))]
    assert shown == [0, 1, 2, 3, 20, 21, 22, 23, 40, 41, 42, 43, 60, 61, 62, 63]
    frames = frames_of_a_run(64)
    frames[-1]["step_trace"] = step
    html = run_html(ribbon(64), frames)
    assert re.findall(r">(rank|pipeline) (\d+)<", html) == [("pipeline", str(i)) for i in range(16)]


def test_meters_lie_below_what_each_rank_did_and_stay_small():
    for ranks, lines in ((2, 2), (64, 1)):
        run = ribbon(ranks)
        numbers = {letter: [50] * ranks for letter in ("c", "m")}
        run.meters.at = {second: dict(numbers) for second in range(1, 10)}
        html = run_html(run, frames_of_a_run(ranks))
        rows = re.findall(r'<div class="tnt-used">.*?</svg>.*?</div></div>', html)
        assert len(rows) == 2 and len(html) < 130_000
        assert rows[0].count("stroke=") == lines and ">CPU<" in rows[0] and "50%" in rows[0]
        assert "M200 10.0L" in rows[0]  # half of 20, a tenth of the run
    assert "tnt-used" not in run_html(ribbon(), frames_of_a_run())
