"""A pipeline of real ranks in JupyterLab: its plan, its live view, and its Stop button."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, Open

pytestmark = pytest.mark.browser

ATTACH = "%load_ext tnt_notebook\n%tnt_cluster attach {ranks}"
DETACH = "%tnt_cluster detach"
MODEL = """%%tnt
import keras
from keras import layers
convolutions = (layers.Conv2D(8, 3, padding="same", activation="relu") for _ in range(6))
model = keras.Sequential([keras.Input((16, 16, 3)), *convolutions, layers.Flatten(),
                          layers.Dense(10, name="scores")])
model.compile("adam", "mse")"""
PLAN = "%tnt_plan --batch-size 64 --schedule zb-h1"
COMPARE = "%tnt_plan --batch-size 64 --micro-batches 6 --schedule all"
FIT = """%%tnt_fit --pipeline 3 --micro-batches 4 --cut-at b,c
import keras

x = keras.random.normal((64, 64))
layers = [keras.layers.Dense(256, "relu", name=name) for name in "abc"]
model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(x, x[:, :1], batch_size=64, epochs=100_000)  # until it is stopped
"""
NUMBERS = """
import json
from tnt_notebook.dashboard.figures.step_layout import idle
from tnt_notebook.dashboard.figures.wording import short_time

fit.wait()
step = fit.trace.median_step
measured = {**idle(step), "seconds": short_time(step["seconds"]), "formula": step["formula"]}
print(json.dumps({**measured, "state": fit.state, "epochs": len(fit.history["loss"])}))
"""
EPOCHS = '%%tnt\nprint("epochs:", len(history.epoch))'


def test_table_and_timeline_of_a_plan(lab: Lab, open_notebook: Open, two_ranks: str) -> None:
    lab.write("plan.ipynb", [ATTACH.format(ranks=two_ranks), MODEL, PLAN, COMPARE, DETACH])
    notebook = open_notebook("plan.ipynb")
    for cell in range(5):
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
        notebook.screenshots(f"plan-{cell}", outputs)
        # Nothing is wider than its place.
        room = outputs.bounding_box()
        box = table.bounding_box()
        assert room and box and box["x"] + box["width"] <= room["x"] + room["width"] + 1
    details = notebook.outputs(2).locator("details")
    details.locator("summary").click()
    expect(details.locator("tbody tr")).to_have_count(2)


def test_a_pipeline_of_three_ranks(lab: Lab, open_notebook: Open, three_ranks: str) -> None:
    last = [NUMBERS, EPOCHS, DETACH]
    lab.write("three.ipynb", [ATTACH.format(ranks=three_ranks), FIT, "fit", *last])
    notebook = open_notebook("three.ipynb")
    notebook.run_and_wait(0)
    notebook.run_and_wait(1)
    card = notebook.outputs(1).locator(".tnt-card")
    heading = card.locator(".tnt-step")
    expect(heading).to_contain_text("by the formula of 1f1b", timeout=120_000)

    def moves() -> None:
        heading.scroll_into_view_if_needed()  # a card out of sight does not draw
        expect(heading).not_to_have_text(heading.inner_text())

    moves()
    notebook.save()
    notebook.refresh()
    moves()
    expect(card.locator(".tnt-run-canvas")).to_have_attribute("aria-label", re.compile("3 ranks"))
    summary = card.locator(".tnt-step-canvas").get_attribute("aria-label")
    assert summary and "3 ranks" in summary
    notebook.screenshot("pipeline-running", card)
    notebook.run_and_wait(2)  # the handle shows the card once more
    again = notebook.outputs(2).locator(".tnt-card")
    again.scroll_into_view_if_needed()
    expect(again.locator(".tnt-step")).to_contain_text("by the formula of 1f1b")

    card.get_by_role("button", name=re.compile("^Stop")).click()
    outputs = notebook.outputs(1)
    expect(outputs.locator(".tnt-pill")).to_have_text("stopped", timeout=60_000)
    expect(again.locator(".tnt-pill")).to_have_text("stopped")
    notebook.run_and_wait(3)
    numbers = json.loads(notebook.outputs(3).inner_text())
    assert numbers["state"] == "stopped" and 0 < numbers["epochs"] < 100_000
    left = outputs.locator(".tnt-card")
    expect(left).to_contain_text(f"First step of an epoch {numbers['seconds']}")
    for share in (numbers["bubble"], numbers["formula"], *numbers["idle"]):
        expect(left).to_contain_text(f"{share:.0%}")
    notebook.screenshot("pipeline-stopped", outputs)
    notebook.run_and_wait(4)
    # What all ranks print alike is one line: they have stopped after the same step.
    expect(notebook.outputs(4)).to_have_text(f"ranks 0-2: epochs: {numbers['epochs']}")
    notebook.run_and_wait(5)
