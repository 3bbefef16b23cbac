"""The live view in a real JupyterLab, from the first frame to the saved notebook."""

import json
import re
from pathlib import Path

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, Locator, expect

from tests.browser.accessible import expect_accessible
from tests.browser.lab import Lab, Notebook, Open, drag
from tests.support.waiting import eventually

pytestmark = pytest.mark.browser

START = "from driver import Run\nrun = Run('MLP on digits', ranks={ranks}, epochs={epochs}).start()"
END = "run.end()"
CLOSE_SIDEBAR = "() => window.jupyterapp.shell.collapseLeft()"


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


def step_shown(notebook: Notebook) -> int:
    """Steps done so far, as the card says."""
    text = notebook.page.locator(".tnt-where").inner_text()
    shown = re.fullmatch(r"epoch (\d+) of \d+ · step (\d+) of 60", text)
    assert shown, text
    return 60 * (int(shown[1]) - 1) + int(shown[2])


def expect_to_move(notebook: Notebook) -> None:
    """The card's numbers are other ones soon, and later ones."""
    where = notebook.page.locator(".tnt-where")
    expect(where).to_contain_text("epoch")
    before = step_shown(notebook)
    expect(where).not_to_have_text(where.inner_text())
    assert step_shown(notebook) > before


def expect_left_behind(notebook: Notebook) -> None:
    """Summary and figure stand where the card was."""
    outputs = notebook.outputs(0)
    expect(outputs.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(outputs).to_contain_text("━ accuracy")
    expect(outputs.locator(".tnt-pill")).to_have_text("finished")
    expect(outputs.locator(".tnt-number")).to_have_count(2)
    expect(outputs.locator(".tnt-stop")).to_have_count(0)


def expect_readable(element: Locator, theme: str) -> None:
    """Background and text have what the theme wants: dark and light, or light and dark."""
    sign = 1 if theme == "light" else -1
    background = brightness(element, "background-color")
    for text in (
        ".tnt-title",
        ".tnt-where",
        ".tnt-number",
        ".tnt-time-summary",
        ".tnt-pill",
        ".tnt-total",
    ):
        difference = background - brightness(element.locator(text).first, "color")
        assert sign * difference > 0.3, f"{text} is hard to read in a {theme} theme"


def expect_where_a_step_goes(element: Locator) -> None:
    """A bar and a share for each rank, and what limits them."""
    expect(element.locator(".tnt-parts")).to_have_count(4)
    expect(element.locator(".tnt-limit")).to_contain_text("of a step is exchange of")
    expect(element.locator(".tnt-time .tnt-share")).to_have_text([re.compile(r"^6\d% work$")] * 4)


def expect_saved(path: Path) -> None:
    """The first cell's summary and figure are on disk, and no widget."""
    summary, figure = (out["data"] for out in json.loads(path.read_text())["cells"][0]["outputs"])
    assert "application/vnd.jupyter.widget-view+json" not in summary
    assert "".join(summary["text/plain"]).startswith("MLP on digits · finished in ")
    assert "application/vnd.plotly.v1+json" in figure


def test_a_run_from_its_beginning_to_the_saved_notebook(notebook: Notebook, lab: Lab):
    expect_to_move(notebook)
    live = card(notebook)
    expect(live.locator(".tnt-pill")).to_have_text("running")
    expect(live.locator(".tnt-number")).to_have_text([re.compile(r"^\d\.\d+$")] * 2)
    account = live.locator(".tnt-run .tnt-time-summary")
    expect(account).to_have_text(re.compile(r"^[\d.]+ s: .*training [\d.]+ s"))
    ribbon = live.locator(".tnt-run-canvas")
    expect(ribbon).to_have_attribute("aria-label", re.compile(r"^The whole run on 4 ranks, 0:"))
    expect(live.locator(".tnt-when")).to_have_text(re.compile(r"^\d+:\d\d · .* left$"))
    expect(live.locator(".tnt-validation").first).to_contain_text("validation")
    expect_where_a_step_goes(live)
    bars = live.locator(".tnt-parts").first
    work = bars.locator('[title^="work"]')
    assert 0.55 < work.bounding_box()["width"] / bars.bounding_box()["width"] < 0.7
    for theme in ("light", "dark"):
        notebook.change_theme(theme)
        expect_readable(live, theme)
        expect_accessible(notebook)
        notebook.screenshot(f"running-{theme}", live)
    notebook.run_and_wait(1)
    expect_left_behind(notebook)
    expect_where_a_step_goes(notebook.outputs(0))
    for theme in ("dark", "light"):
        notebook.change_theme(theme)
        expect_readable(card(notebook), theme)
        expect_accessible(notebook)
        notebook.screenshot(f"finished-{theme}", notebook.outputs(0))
    notebook.save()
    path = lab.notebooks / notebook.name
    expect_saved(path)
    assert path.stat().st_size < 200_000


def test_after_a_refresh_the_card_goes_on_and_leaves_what_it_would_have_left(
    notebook: Notebook, lab: Lab
):
    """A refreshed page no longer knows the displays that the kernel updates."""
    expect(card(notebook).locator(".tnt-validation").first).to_contain_text("validation")
    before = step_shown(notebook)
    notebook.save()
    notebook.refresh()
    expect_to_move(notebook)
    assert step_shown(notebook) > before
    # The validation of the first epoch is in no later frame: the browser was told again.
    expect(card(notebook).locator(".tnt-validation").first).to_contain_text("validation")
    # And what ranks did before it.
    words = pointed_at(notebook, row=0, share=0.001)
    expect(words).to_have_text(re.compile("^rank 0: starting|^rank 0: importing"))
    notebook.run_and_wait(1)
    expect_left_behind(notebook)
    notebook.save()
    expect_saved(lab.notebooks / notebook.name)


def test_numbers_move_and_stop_works_while_the_cell_blocks(lab: Lab, open_notebook: Open):
    until_stopped = "run.asked_to_stop.wait(); run.end('stopped')"
    lab.write("blocking.ipynb", [f"{START.format(ranks=2, epochs=50)}\n{until_stopped}"])
    notebook = open_notebook("blocking.ipynb")
    notebook.run(0)
    expect_to_move(notebook)
    expect(notebook.prompt(0)).to_have_text("[*]:")
    card(notebook).get_by_role("button", name="Stop").click()
    expect(notebook.outputs(0).locator(".tnt-pill")).to_have_text("stopped")
    notebook.wait_until_idle()


def test_a_browser_that_was_closed_meanwhile_finds_the_end_too(lab: Lab, open_notebook: Open):
    lab.write("closed.ipynb", [START.format(ranks=2, epochs=2), "run.wait()"])
    notebook = open_notebook("closed.ipynb")
    notebook.run_and_wait(0)
    expect_to_move(notebook)
    notebook.save()
    notebook.run(1)
    expect(notebook.prompt(1)).to_have_text("[*]:")
    notebook.page.close()
    eventually(lambda: not lab.is_busy())
    expect_left_behind(open_notebook("closed.ipynb"))


def test_a_saved_notebook_can_be_read_without_its_kernel_and_by_somebody_else(
    notebook: Notebook, lab: Lab, open_notebook: Open, browser: Browser
):
    expect_to_move(notebook)
    notebook.run_and_wait(1)
    expect_left_behind(notebook)
    notebook.save()
    # What JupyterLab does not trust it shows without styles, and the figure as an image: also where
    # the styles of the widget, and of the still itself, are in the page.
    text = (lab.notebooks / notebook.name).read_text().replace("MLP on digits ·", "MLP, sent ·")
    (lab.notebooks / "sent.ipynb").write_text(text)
    sent = open_notebook("sent.ipynb")
    expect(card(notebook)).to_have_count(2)
    expect(sent.outputs(0).get_by_role("img")).to_be_visible()
    expect(sent.outputs(0).locator("pre")).to_contain_text("samples/s while training  ")
    expect(sent.outputs(0).locator(".tnt-title")).to_be_hidden()
    sent.screenshot("untrusted-light", sent.outputs(0))
    sent.page.close()
    lab.shut_down_kernels()
    again = open_notebook(notebook.name, theme="dark")
    outputs = again.outputs(0)
    expect(outputs.locator(".tnt-pill")).to_have_text("finished")
    expect(outputs).not_to_contain_text("model not found")
    # plotly's renderer shows the image it had saved, and the figure itself to a pointer over it.
    expect(outputs.get_by_role("img")).to_be_visible()
    again.screenshot("reopened-dark", outputs)
    outputs.get_by_role("img").dispatch_event("mouseenter")
    expect(outputs.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect_shown_in_html(lab.notebooks / notebook.name, browser)


def expect_shown_in_html(path: Path, browser: Browser) -> None:
    """As nbconvert exports the notebook, it shows the still, and not its words beside it."""
    page = browser.new_page()
    page.route("**", lambda route: route.abort())  # it would load its libraries from the network
    page.set_content(HTMLExporter().from_filename(str(path))[0], wait_until="domcontentloaded")
    expect(page.locator(".tnt-pill")).to_have_text("finished")
    expect(page.locator(".tnt-pill")).to_be_visible()
    expect(page.locator(".tnt-words")).to_be_hidden()
    page.close()


def test_in_a_narrow_window_nothing_is_cut_off(notebook: Notebook):
    expect(card(notebook).locator(".tnt-parts")).to_have_count(4)
    notebook.page.set_viewport_size({"width": 480, "height": 1000})
    notebook.page.evaluate(CLOSE_SIDEBAR)
    box = card(notebook).bounding_box()
    assert box and box["width"] < 480
    for part in (".tnt-title", ".tnt-stop", ".tnt-pill", ".tnt-time-summary", ".tnt-run-canvas"):
        inner = card(notebook).locator(part).first.bounding_box()
        assert inner and inner["width"] > 20, part
        assert 0 <= inner["x"] - box["x"] <= box["width"] - inner["width"], part
    notebook.screenshot("narrow-light", card(notebook))


def test_stop_by_keyboard(notebook: Notebook):
    stop = card(notebook).get_by_role("button", name="Stop MLP on digits")
    stop.focus()
    notebook.page.keyboard.press("Enter")
    expect(card(notebook).locator(".tnt-pill")).to_have_text("stopping …")
    expect(stop).to_be_disabled()
    notebook.set_source(1, "assert run.asked_to_stop.wait(10); run.end('stopped')")
    notebook.run_and_wait(1)
    expect(notebook.outputs(0).locator(".tnt-pill")).to_have_text("stopped")


def test_a_failure_says_what_happened(notebook: Notebook):
    expect_to_move(notebook)
    words = "Rank 1 raised ValueError: no data.\n\nline 3 of the cell: model.fit(x)"
    failing = f"run.end('failed', {words!r}, 'rank 1:\\n----> 3 model.fit(x)')"
    notebook.set_source(1, f"{failing}\ndisplay(run.view._card)")  # it would be gone
    notebook.run_and_wait(1)
    for cell, name in ((0, "failed"), (1, "failed-live")):
        outputs = notebook.outputs(cell)
        expect(outputs.locator(".tnt-pill")).to_have_text("failed")
        expect(outputs.locator(".tnt-error:visible")).to_have_text(words)
        calls = outputs.locator(".tnt-traceback pre")
        expect(calls).to_be_hidden()
        outputs.get_by_text("Traceback", exact=True).click()
        expect(calls).to_have_text("rank 1:\n----> 3 model.fit(x)")
        expect(calls).to_be_visible()
        notebook.screenshot(f"{name}-light", outputs)


def pointed_at(notebook: Notebook, row: int, share: float) -> Locator:
    """What is said of a rank's row of four, at a part of the run so far."""
    canvas = card(notebook).locator(".tnt-run-canvas")
    box = canvas.bounding_box()
    assert box
    left, right, top = 70, 46, 106  # "host mem." is the longest name of a row
    x, y = left + share * (box["width"] - left - right), top + 18 * row + 7
    words = card(notebook).locator(".tnt-run .tnt-tip div").first

    def pointed() -> bool:
        """What ranks did may come to the browser a moment after the card: then there are none."""
        canvas.hover(position={"x": x, "y": y - 1})
        canvas.hover(position={"x": x, "y": y})
        return words.is_visible()

    eventually(pointed)
    return words


def test_the_whole_run_by_pointer_and_keyboard(notebook: Notebook):
    expect(card(notebook).locator(".tnt-validation").first).to_contain_text("validation")
    account = card(notebook).locator(".tnt-run .tnt-time-summary")
    expect(account).to_have_text(re.compile(r"^[\d.]+ s: "))
    expect(pointed_at(notebook, 2, 0.5)).to_have_text(re.compile("^rank 2: "))
    canvas = card(notebook).locator(".tnt-run-canvas")
    box = canvas.bounding_box()
    assert box
    canvas.hover(position={"x": box["width"] - 60, "y": 40})
    words = card(notebook).locator(".tnt-run .tnt-tip div")
    number = r"[\d.]+"
    curves = f"loss {number} · accuracy {number}"
    said = [
        re.compile(f"^{curves}$"),
        re.compile(f"^validation: {curves}$"),
        re.compile(r"^0:\d\d$"),
    ]
    expect(words).to_have_text(said)
    log = card(notebook).get_by_role("button", name="log")
    log.click()
    expect(log).to_have_attribute("aria-pressed", "true")
    notebook.screenshot("run-log-light", card(notebook))
    drag(canvas, (100, 120), (500, 120))
    expect(account).to_have_text(re.compile(r"^\d:\d\d to \d:\d\d, .*: .*training \d+%"))
    keys = card(notebook).locator(".tnt-run .tnt-keys")
    expect(keys).to_be_hidden()
    canvas.press("?")
    expect(keys).to_contain_text("the whole run")
    notebook.screenshot("run-range-light", card(notebook))
    canvas.press("?")
    expect(keys).to_be_hidden()
    canvas.press("Escape")
    expect(account).to_have_text(re.compile(r"^[\d.]+ s: "))
    whole = card(notebook).get_by_role("button", name="whole run")
    expect(whole).to_be_disabled()
    canvas.press("w")
    expect(whole).to_be_enabled()
    canvas.press("0")
    expect(whole).to_be_disabled()
    expect(notebook.cells).to_have_count(2)  # JupyterLab's own shortcuts did nothing


def test_a_kernel_that_is_gone_is_said_to_be_until_another_takes_over(notebook: Notebook):
    expect_to_move(notebook)
    notebook.restart_kernel()
    expect(card(notebook).locator(".tnt-pill")).to_have_text("connection lost")
    expect(card(notebook).locator(".tnt-error:visible")).to_contain_text("%tnt_cluster attach")
    expect(card(notebook).get_by_role("button", name="Stop MLP on digits")).to_be_disabled()
    notebook.screenshot("lost-light", card(notebook))
    minute = "import time\n" + START.format(ranks=4, epochs=50)
    notebook.set_source(1, minute.replace(").start()", ", began=time.time() - 60).start()"))
    notebook.run_and_wait(1)
    expect(notebook.outputs(0)).to_contain_text("from another kernel: see where it was attached")
    expect(card(notebook)).to_have_count(1)
    expect(card(notebook).locator(".tnt-pill")).to_have_text("running")
    expect(card(notebook).locator(".tnt-when")).to_have_text(re.compile(r"^1:\d\d"))


def test_many_ranks_have_a_thin_row_each(lab: Lab, open_notebook: Open):
    lab.write("many.ipynb", [START.format(ranks=64, epochs=4), END])
    notebook = open_notebook("many.ipynb")
    notebook.run_and_wait(0)
    expect(notebook.page.locator(".tnt-where")).to_contain_text("epoch 2 of 4")
    canvas = card(notebook).locator(".tnt-run-canvas")
    box = canvas.bounding_box()
    assert box
    canvas.hover(position={"x": box["width"] - 60, "y": 106 + 3 * 17 + 1})  # of just now
    words = card(notebook).locator(".tnt-run .tnt-tip div").first
    expect(words).to_have_text("rank 17: training")
    notebook.screenshot("many-ranks-light", card(notebook))
    notebook.run_and_wait(1)
    expect(notebook.outputs(0).locator(".js-plotly-plot .main-svg").first).to_be_visible()
    notebook.screenshot("many-ranks-finished-light", notebook.outputs(0))


def brightness(element: Locator, colour: str) -> float:
    """0 for black to 1 for white."""
    value = element.evaluate(f"e => getComputedStyle(e).getPropertyValue('{colour}')")
    return sum(map(int, re.findall(r"\d+", value)[:3])) / (3 * 255)
