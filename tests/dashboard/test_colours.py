"""Colours that stand beside each other can be told apart, by all eyes and in both themes."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tnt_notebook.dashboard.figures.step_figure import IDLE
from tnt_notebook.telemetry import PARTS, breakdown
from tnt_notebook.telemetry.activities import DOING
from tnt_notebook.telemetry.kinds import BOX_KINDS

#: Of linear RGB, how full eyes and those without the red or the green cones see: Machado, Oliveira,
#: Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency, 2009.
EYES = (
    np.eye(3),
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
     [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
     [-0.011820, 0.042940, 0.968881]],
)  # fmt: skip
PAGES = (255, 17)  # light and dark
#: What is plainly another colour, in units of CIELAB.
APART = 15

#: Without what is work in both, and never beside actions.
BOXES = {kind.words: kind.colour for kind in BOX_KINDS.values() if kind.letter != "C"}
BESIDE_EACH_OTHER = (
    {name: part.colour for name, part in PARTS.items()},
    BOXES | {"idle": IDLE},
    {doing.words: doing.colour for doing in DOING.values()},
)


def lab(colour: str, page: int, eye: np.ndarray) -> np.ndarray:
    """A colour of CSS on a page, in CIELAB."""
    if colour.startswith("#"):
        *rgb, alpha = (*bytes.fromhex(colour[1:]), 1.0)
    else:
        *rgb, alpha = map(float, re.findall(r"[\d.]+", colour))
    seen = (alpha * np.array(rgb) + (1 - alpha) * page) / 255
    linear = np.where(seen <= 0.04045, seen / 12.92, ((seen + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(eye) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ linear / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("colours", BESIDE_EACH_OTHER)
def test_parts_boxes_and_activities_can_be_told_apart(colours):
    for a, b in itertools.combinations(colours, 2):
        for page, eye in itertools.product(PAGES, EYES):
            one, other = (lab(colours[name], page, eye) for name in (a, b))
            assert np.linalg.norm(one - other) > APART, (a, b, page)


def test_what_is_a_part_and_a_box_has_one_name_and_one_colour():
    for box, part in (("D", "input"), ("X", "exchange"), ("O", "other"), ("R", "wait")):
        assert BOX_KINDS[box].colour == PARTS[part].colour
    assert (BOX_KINDS["D"].words, BOX_KINDS["X"].words) == ("input", "exchange")
    tables = Path(breakdown.__file__).parent.glob("*.json")
    assert "wait for data" not in json.dumps([json.loads(table.read_text()) for table in tables])
