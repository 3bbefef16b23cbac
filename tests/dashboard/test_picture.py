"""The still picture of the last step."""

import re
from xml.etree import ElementTree

import pytest

from tests.dashboard.runs import frames_of_a_run
from tests.dashboard.steps import step_of_a_pipeline
from tnt_notebook import telemetry
from tnt_notebook.dashboard.picture import MOST_ROWS, WIDTH, step_html
from tnt_notebook.dashboard.saved import summary_bundle


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


@pytest.mark.parametrize("micro_batches", [8, 64, 400])
def test_it_stays_small_and_shows_some_of_many_ranks(micro_batches):
    step = step_of_a_pipeline("zb-v", 4, micro_batches, around=True, message=1e-4, replicas=8)
    html = step_html(step)
    assert len(html) < 60_000
    ranks = re.findall(r"rank (\d+)<", html)
    assert ranks[0] == "0" and len(ranks) <= MOST_ROWS


def test_the_summary_has_the_last_step_and_does_without():
    frames = frames_of_a_run(4)
    assert telemetry.median_step(frames) is None
    html = summary_bundle("MLP", 4, frames, "finished", None)["text/html"]
    assert "Last step" not in html
    frames[3]["step_trace"] = step_of_a_pipeline("gpipe")
    frames[5]["step_trace"] = step_of_a_pipeline("1f1b")
    html = summary_bundle("MLP", 4, frames, "finished", None)["text/html"]
    assert "by the formula of 1f1b" in html
