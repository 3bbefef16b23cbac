"""The live view in a real JupyterLab, from the first frame to the saved notebook."""

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

Open = Callable[..., "Notebook"]

START = "from driver import Run\nrun = Run('MLP on digits', ranks={ranks}, epochs={epochs}).start()"
END = "run.end()"
FAIL = "run.end('failed', 'Rank 1 raised ValueError: x and y have different lengths.')"


@pytest.fixture
def notebook(lab: Lab, open_notebook: Open, request: pytest.FixtureRequest) -> Notebook:
    """A notebook with a run on four ranks going on: START and END are its cells."""
    name = f"{request.node.name}.ipynb"
    lab.write(name, [START.format(ranks=4, epochs=50), END])
    opened = open_notebook(name)
    opened.run_and_wait(0)
    return opened


def card(notebook: Notebook) -> Locator:
    return notebook.page.locator(".tnt-card")


def step_shown(notebook: Notebook, epochs: int = 50) -> int:
    """Steps done so far, as the card says."""
    text = notebook.page.locator(".tnt-where").inner_text()
    shown = re.fullmatch(rf"epoch (\d+) of {epochs} · step (\d+) of 60", text)
    assert shown, text
    return 60 * (int(shown[1]) - 1) + int(shown[2])


def expect_to_move(notebook: Notebook, epochs: int = 50) -> None:
    """The card's numbers are other ones soon, and later ones."""
    expect(notebook.page.locator(".tnt-where")).to_contain_text("epoch")
    before, text = step_shown(notebook, epochs), notebook.page.locator(".tnt-where").inner_text()
    expect(notebook.page.locator(".tnt-where")).not_to_have_text(text)
    assert step_shown(notebook, epochs) > before


def expect_left_behind(notebook: Notebook) -> None:
    """Summary and figure stand where the card was."""
    outputs = notebook.outputs(0)
    expect(outputs.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(outputs).to_contain_text("samples per second of rank")
    expect(outputs.locator(".tnt-pill")).to_have_text("finished")
    expect(outputs.locator(".tnt-number")).to_have_count(2)
    expect(outputs.locator(".tnt-stop")).to_have_count(0)


def expect_readable(element: Locator, theme: str) -> None:
    """Background and text have what the theme wants: dark and light, or light and dark."""
    sign = 1 if theme == "light" else -1
    background = brightness(element, "background-color")
    for text in (".tnt-title", ".tnt-where", ".tnt-number", ".tnt-rate", ".tnt-pill", ".tnt-total"):
        difference = background - brightness(element.locator(text).first, "color")
        assert sign * difference > 0.3, f"{text} is hard to read in a {theme} theme"


def outputs_on_disk(path: Path) -> list[dict[str, str]]:
    """The MIME bundles that the first cell left in the saved notebook."""
    return [output["data"] for output in json.loads(path.read_text())["cells"][0]["outputs"]]


def test_numbers_move_while_the_run_goes_on(notebook: Notebook):
    expect_to_move(notebook)
    expect(card(notebook).locator(".tnt-pill")).to_have_text("running")
    expect(card(notebook).locator(".tnt-number")).to_have_text([re.compile(r"^\d\.\d+$")] * 2)
    expect(card(notebook).locator(".tnt-rate")).to_have_text([re.compile(r"^[\d,]+$")] * 4)
    expect(card(notebook).locator(".tnt-when")).to_have_text(re.compile(r"^\d+:\d\d · .* left$"))
    expect(card(notebook).locator(".tnt-validation").first).to_contain_text("validation")


def test_where_a_step_goes(notebook: Notebook, pictures: Path):
    bars = card(notebook).locator(".tnt-parts")
    expect(bars).to_have_count(4)
    expect(card(notebook).locator(".tnt-limit")).to_contain_text("of a step is exchange of")
    expect(card(notebook).locator(".tnt-share")).to_have_text([re.compile(r"^6\d% work$")] * 4)
    work = bars.first.locator('[data-part="work"]')
    share = work.bounding_box()["width"] / bars.first.bounding_box()["width"]
    assert 0.55 < share < 0.7
    card(notebook).screenshot(path=pictures / "where-a-step-goes.png")
    notebook.run_and_wait(1)
    outputs = notebook.outputs(0)
    expect(outputs.locator(".tnt-parts")).to_have_count(4)  # in the still picture, too
    expect(outputs.locator(".tnt-limit")).to_contain_text("of a step is exchange of")


def test_numbers_move_and_stop_works_while_the_cell_blocks(lab: Lab, open_notebook: Open):
    until_stopped = "run.asked_to_stop.wait(); run.end('stopped')"
    lab.write("blocking.ipynb", [f"{START.format(ranks=2, epochs=50)}\n{until_stopped}"])
    notebook = open_notebook("blocking.ipynb")
    notebook.run(0)
    expect_to_move(notebook)
    assert notebook.prompt(0) == "[*]:"
    card(notebook).get_by_role("button", name="Stop").click()
    expect(notebook.outputs(0).locator(".tnt-pill")).to_have_text("stopped")
    notebook.wait_until_idle()


def test_the_card_comes_back_after_a_refresh_and_goes_on(notebook: Notebook):
    expect(card(notebook).locator(".tnt-validation").first).to_contain_text("validation")
    before = step_shown(notebook)
    notebook.save()
    notebook.refresh()
    expect_to_move(notebook)
    assert step_shown(notebook) > before
    # The validation of the first epoch is in no later frame: the browser was told again.
    expect(card(notebook).locator(".tnt-validation").first).to_contain_text("validation")
    assert points_drawn(notebook) > before // 20


def test_a_run_from_its_beginning_to_the_saved_notebook(
    lab: Lab, open_notebook: Open, pictures: Path
):
    lab.write("whole.ipynb", [START.format(ranks=4, epochs=50), END])
    notebook = open_notebook("whole.ipynb")
    notebook.run_and_wait(0)
    expect(notebook.page.locator(".tnt-where")).to_contain_text("epoch 2 of 50", timeout=30_000)
    for theme in ("light", "dark"):
        notebook.change_theme(theme)
        expect_readable(card(notebook), theme)
        notebook.screenshot(pictures / f"running-{theme}.png", card(notebook))
    notebook.run_and_wait(1)
    expect_left_behind(notebook)
    for theme in ("dark", "light"):
        notebook.change_theme(theme)
        expect_readable(card(notebook), theme)
        notebook.screenshot(pictures / f"finished-{theme}.png", notebook.outputs(0))
    notebook.save()
    path = lab.notebooks / notebook.name
    summary, figure = outputs_on_disk(path)
    assert "application/vnd.jupyter.widget-view+json" not in summary
    assert "".join(summary["text/plain"]).startswith("MLP on digits · finished in ")
    assert "application/vnd.plotly.v1+json" in figure
    assert path.stat().st_size < 200_000


def test_it_leaves_them_after_a_refresh_too(notebook: Notebook, lab: Lab):
    """A refreshed page no longer knows the displays that the kernel updates."""
    expect_to_move(notebook)
    notebook.save()
    notebook.refresh()
    expect_to_move(notebook)
    notebook.run_and_wait(1)
    expect_left_behind(notebook)
    notebook.save()
    summary, figure = outputs_on_disk(lab.notebooks / notebook.name)
    assert "application/vnd.jupyter.widget-view+json" not in summary
    assert "application/vnd.plotly.v1+json" in figure


def test_a_browser_that_was_closed_meanwhile_finds_them_too(lab: Lab, open_notebook: Open):
    lab.write("closed.ipynb", [START.format(ranks=2, epochs=2), "run.wait()"])
    notebook = open_notebook("closed.ipynb")
    notebook.run_and_wait(0)
    expect_to_move(notebook, epochs=2)
    notebook.save()
    notebook.run(1)
    expect(notebook.cells.nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    notebook.page.close()
    lab.wait_until_kernels_are_idle()
    expect_left_behind(open_notebook("closed.ipynb"))


def test_the_saved_notebook_shows_them_without_its_kernel(
    notebook: Notebook, lab: Lab, open_notebook: Open, pictures: Path
):
    expect_to_move(notebook)
    notebook.run_and_wait(1)
    expect_left_behind(notebook)
    notebook.save()
    notebook.page.close()
    lab.shut_down_kernels()
    again = open_notebook(notebook.name, theme="dark")
    outputs = again.outputs(0)
    expect(outputs.locator(".tnt-pill")).to_have_text("finished")
    expect(outputs).not_to_contain_text("model not found")
    # plotly's renderer shows the image it had saved, and the figure itself to a pointer over it.
    expect(outputs.get_by_role("img")).to_be_visible()
    again.screenshot(pictures / "reopened-dark.png", outputs)
    outputs.get_by_role("img").dispatch_event("mouseenter")
    expect(outputs.locator(".js-plotly-plot .main-svg").first).to_be_visible()


def test_a_notebook_from_somebody_else_can_be_read_too(
    notebook: Notebook, lab: Lab, open_notebook: Open, pictures: Path
):
    """What JupyterLab does not trust it shows without styles, and the figure as an image."""
    expect_to_move(notebook)
    notebook.run_and_wait(1)
    expect_left_behind(notebook)
    notebook.save()
    # The styles of its widget reach whatever is in a page that knows the widget.
    notebook.page.close()
    lab.shut_down_kernels()
    text = (lab.notebooks / notebook.name).read_text().replace("MLP on digits ·", "MLP, sent ·")
    (lab.notebooks / "sent.ipynb").write_text(text)
    sent = open_notebook("sent.ipynb")
    expect(sent.outputs(0).get_by_role("img")).to_be_visible()
    expect(sent.outputs(0).locator("pre")).to_contain_text("  rank   samples/s        samples")
    expect(sent.outputs(0).locator(".tnt-title")).to_be_hidden()
    sent.screenshot(pictures / "untrusted-light.png", sent.outputs(0))


def test_stop_by_keyboard(notebook: Notebook):
    stop = card(notebook).get_by_role("button", name="Stop MLP on digits")
    stop.focus()
    notebook.page.keyboard.press("Enter")
    expect(card(notebook).locator(".tnt-pill")).to_have_text("stopping …")
    expect(stop).to_be_disabled()
    notebook.set_source(1, "assert run.asked_to_stop.wait(10); run.end('stopped')")
    notebook.run_and_wait(1)
    expect(notebook.outputs(0).locator(".tnt-pill")).to_have_text("stopped")


def test_a_failure_says_what_happened(notebook: Notebook, pictures: Path):
    expect_to_move(notebook)
    notebook.set_source(1, FAIL)
    notebook.run_and_wait(1)
    outputs = notebook.outputs(0)
    expect(outputs.locator(".tnt-pill")).to_have_text("failed")
    expect(outputs.locator(".tnt-error")).to_have_text(re.compile("^Rank 1 raised ValueError"))
    notebook.screenshot(pictures / "failed-light.png", outputs)


def test_many_ranks_are_a_heat_map(lab: Lab, open_notebook: Open, pictures: Path):
    lab.write("many.ipynb", [START.format(ranks=64, epochs=4), END])
    notebook = open_notebook("many.ipynb")
    notebook.run_and_wait(0)
    expect(notebook.page.locator(".tnt-where")).to_contain_text("epoch 2 of 4", timeout=30_000)
    heat = card(notebook).get_by_role("img")
    expect(heat).to_have_attribute("aria-label", re.compile("^samples per second of 64 ranks; "))
    expect(card(notebook).locator(".tnt-throughput .tnt-rank")).to_have_count(0)
    heat.hover(position={"x": 300, "y": 3 * 17 + 1})
    words = card(notebook).locator(".tnt-throughput .tnt-tip")
    expect(words).to_have_text(re.compile(r"^rank 17[\d,]+ samples/s at \d+:\d\d$"))
    notebook.screenshot(pictures / "many-ranks-light.png", card(notebook))
    notebook.run_and_wait(1)
    expect(notebook.outputs(0).locator(".js-plotly-plot .main-svg").first).to_be_visible()
    notebook.screenshot(pictures / "many-ranks-finished-light.png", notebook.outputs(0))


def points_drawn(notebook: Notebook) -> int:
    """Points of the curve of the loss."""
    path = card(notebook).locator(".tnt-tile .tnt-curve").first.get_attribute("d") or ""
    return len(re.findall("[ML]", path))


def brightness(element: Locator, colour: str) -> float:
    """0 for black to 1 for white."""
    value = element.evaluate(f"e => getComputedStyle(e).getPropertyValue('{colour}')")
    return sum(map(int, re.findall(r"\d+", value)[:3])) / (3 * 255)
