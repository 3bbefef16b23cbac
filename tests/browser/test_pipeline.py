"""The live view of a real pipeline of four ranks in JupyterLab, and its Stop button."""

from __future__ import annotations

import json
import re
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

START = "%load_ext tnt_notebook\n%tnt_cluster start -n 4"
FIT = """%%tnt_fit --pipeline 4 --micro-batches 4 --cut-at b,c,d
import keras

x = keras.random.normal((64, 64))
layers = [keras.layers.Dense(256, "relu", name=name) for name in "abcd"]
model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(x, x[:, :1], batch_size=64, epochs=100_000)  # until it is stopped
"""
NUMBERS = """
import json
from tnt_notebook.dashboard.step_layout import idle
from tnt_notebook.dashboard.wording import short_time

fit.wait()
step = fit.trace.steps[-1]
measured = {**idle(step), "seconds": short_time(step["seconds"]), "formula": step["formula"]}
print(json.dumps({**measured, "state": fit.state, "epochs": len(fit.history["loss"])}))
"""
EPOCHS = '%%tnt\nprint("epochs:", len(history.epoch))'
STOP = "%tnt_cluster stop"


@pytest.mark.timeout(400)
def test_a_pipeline_of_four_ranks(
    lab: Lab, open_notebook: Callable[..., Notebook], pictures: Path
) -> None:
    lab.write("pipeline-of-four.ipynb", [START, FIT, NUMBERS, EPOCHS, STOP])
    notebook = open_notebook("pipeline-of-four.ipynb")
    notebook.run_and_wait(0, timeout_s=120)
    notebook.run_and_wait(1)
    card = notebook.page.locator(".tnt-card")
    heading = card.locator(".tnt-step")
    expect(heading).to_contain_text("by the formula of 1f1b", timeout=120_000)
    for _ in range(3):  # it moves
        heading.scroll_into_view_if_needed()
        expect(heading).not_to_have_text(heading.inner_text(), timeout=30_000)
    summary = card.locator(".tnt-step-canvas").get_attribute("aria-label")
    assert summary and "4 ranks" in summary
    notebook.screenshot(pictures / "pipeline-running.png", card)

    card.get_by_role("button", name=re.compile("^Stop")).click()
    outputs = notebook.outputs(1)
    expect(outputs.locator(".tnt-pill")).to_have_text("stopped", timeout=60_000)
    notebook.run_and_wait(2)
    numbers = json.loads(notebook.outputs(2).inner_text())
    assert numbers["state"] == "stopped" and 0 < numbers["epochs"] < 100_000
    left = outputs.locator(".tnt-still")
    expect(left).to_contain_text(f"Last step {numbers['seconds']}")
    for share in (numbers["bubble"], numbers["formula"], *numbers["idle"]):
        expect(left).to_contain_text(f"{share:.0%}")
    notebook.screenshot(pictures / "pipeline-stopped.png", outputs)
    notebook.run_and_wait(3)
    # What all ranks print alike is one line: they have stopped after the same step.
    expect(notebook.outputs(3)).to_have_text(f"ranks 0-3: epochs: {numbers['epochs']}")
    notebook.run_and_wait(4)
