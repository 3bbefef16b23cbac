"""``%tnt_plan`` in a real JupyterLab: ranks plan, the browser shows table and timeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: no test in a browser did run"
).expect

pytestmark = pytest.mark.browser

START = "%load_ext tnt_notebook\n%tnt_cluster start -n 2"
MODEL = """%%tnt
import keras
from keras import layers
convolutions = (layers.Conv2D(8, 3, padding="same", activation="relu") for _ in range(6))
model = keras.Sequential([keras.Input((16, 16, 3)), *convolutions, layers.Flatten(),
                          layers.Dense(10, name="scores")])
model.compile("adam", "mse")"""
PLAN = "%tnt_plan --batch-size 64 --schedule zb-h1"
COMPARE = "%tnt_plan --batch-size 64 --micro-batches 6 --schedule all"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_table_and_timeline(
    lab: Lab, open_notebook: Callable[..., Notebook], pictures: Path, theme: str
) -> None:
    name = f"plan-{theme}.ipynb"
    lab.write(name, [START, MODEL, PLAN, COMPARE])
    notebook = open_notebook(name, theme)
    for cell in range(4):
        notebook.run_and_wait(cell)
    for cell, columns, rows in ((2, 10, 2), (3, 8, 5)):
        outputs = notebook.outputs(cell)
        table = outputs.locator("table").first
        expect(table.locator("th")).to_have_count(columns)
        expect(table.locator("tbody tr")).to_have_count(rows)
        figure = outputs.locator(".js-plotly-plot .main-svg").first
        expect(figure).to_be_visible()
        expect(outputs.locator(".js-plotly-plot")).to_contain_text("rank 1")
        notebook.page.mouse.move(0, 0)
        notebook.screenshot(pictures / f"plan-{cell}-{theme}.png", outputs)
        # Nothing is wider than its place.
        room = outputs.bounding_box()
        box = table.bounding_box()
        assert room and box and box["x"] + box["width"] <= room["x"] + room["width"] + 1
    details = notebook.outputs(2).locator("details")
    details.locator("summary").click()
    expect(details.locator("tbody tr")).to_have_count(2)
