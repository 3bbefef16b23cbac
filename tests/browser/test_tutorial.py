"""The first tutorial in JupyterLab, as a person goes through it, on real ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab, Notebook

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: no test in a browser did run"
).expect

pytestmark = pytest.mark.browser

TUTORIAL = Path(__file__).parents[2] / "notebooks" / "01-from-zero-to-a-trained-model.ipynb"


def step_shown(card: Locator) -> int:
    """Steps done so far, as the card says."""
    shown = re.fullmatch(
        r"epoch (\d+) of \d+ · step (\d+) of (\d+)", card.locator(".tnt-where").inner_text()
    )
    assert shown, card.inner_text()
    epoch, step, steps = map(int, shown.groups())
    return (epoch - 1) * steps + step


def expect_to_move(card: Locator) -> int:
    card.scroll_into_view_if_needed()  # a card out of sight does not draw
    where = card.locator(".tnt-where")
    expect(where).to_contain_text("epoch", timeout=60_000)
    before, text = step_shown(card), where.inner_text()
    expect(where).not_to_have_text(text)
    after = step_shown(card)
    assert after > before
    return after


def code_cells(lab: Lab) -> tuple[str, dict[str, int]]:
    """A copy of the tutorial that trains longer; the place of each code cell, by a word in it."""
    content = json.loads(TUTORIAL.read_text())
    for cell in content["cells"]:
        cell["source"] = [line.replace("epochs=12", "epochs=100") for line in cell["source"]]
    (lab.notebooks / "tutorial.ipynb").write_text(json.dumps(content))
    sources = ["".join(cell["source"]) for cell in content["cells"]]
    words = ("load_ext", "tnt_cluster status", "hello", "heatmap", "one_process =", "%%tnt_fit")
    words += ("run.wait()", "run.model", "weights agree", "wrong =", "tnt_pull wrong", "stop")
    places = {}
    for word in words:
        places[word] = max(
            i
            for i, (cell, source) in enumerate(zip(content["cells"], sources, strict=True))
            if cell["cell_type"] == "code" and word.lower() in source.lower()
        )
    return "tutorial.ipynb", places


@pytest.mark.timeout(600)
def test_the_tutorial(lab: Lab, open_notebook: Callable[..., Notebook], pictures: Path):
    name, at = code_cells(lab)
    notebook = open_notebook(name)
    notebook.run_and_wait(at["load_ext"], timeout_s=120)
    expect(notebook.outputs(at["load_ext"])).to_contain_text("2 ranks are ready")
    notebook.run_and_wait(at["tnt_cluster status"])
    expect(notebook.outputs(at["tnt_cluster status"])).to_contain_text("idle")
    notebook.run_and_wait(at["hello"])
    expect(notebook.outputs(at["hello"])).to_contain_text("ranks 0-1: hello from one of 2")
    notebook.run_and_wait(at["heatmap"])
    notebook.run_and_wait(at["one_process ="], timeout_s=240)

    notebook.run_and_wait(at["%%tnt_fit"])
    card = notebook.page.locator(".tnt-card")
    before = expect_to_move(card)
    notebook.screenshot(pictures / "tutorial-running.png", notebook.outputs(at["%%tnt_fit"]))
    notebook.save()
    notebook.refresh()
    assert expect_to_move(card) > before
    expect(card.locator(".tnt-rate")).to_have_text([re.compile(r"^[\d,]+$")] * 2)

    notebook.run_and_wait(at["run.wait()"], timeout_s=240)
    outputs = notebook.outputs(at["%%tnt_fit"])
    expect(outputs.locator(".tnt-pill")).to_have_text("finished")
    expect(outputs.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    notebook.screenshot(pictures / "tutorial-finished.png", outputs)
    for word in ("run.model", "weights agree", "wrong =", "tnt_pull wrong", "stop"):
        notebook.run_and_wait(at[word], timeout_s=120)
    expect(notebook.outputs(at["run.model"])).to_contain_text("accuracy: 0.9")
    agreement = notebook.outputs(at["weights agree"])
    expect(agreement).to_contain_text("val_loss     agrees: True")
    expect(agreement).not_to_contain_text("False")
    expect(notebook.outputs(at["stop"])).to_contain_text("stopped")
    notebook.screenshot(pictures / "tutorial-end.png")
