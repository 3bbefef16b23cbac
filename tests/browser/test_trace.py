"""Runs that are kept, in a real JupyterLab: shown afterwards, or followed; compared."""

import json
import signal
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, Open
from tests.dashboard.runs import frames_of_a_run
from tests.telemetry.kept_runs import frames_with_steps, keep
from tnt_notebook.telemetry import run_writer

pytestmark = pytest.mark.browser


@pytest.fixture
def stop_signal() -> Iterator[threading.Event]:
    """Set when somebody asks the run that this process writes to stop."""
    asked = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda signum, frame: asked.set())
    yield asked
    signal.signal(signal.SIGUSR1, before)


def test_a_kept_run_and_two_beside_each_other(lab: Lab, open_notebook: Open) -> None:
    staged = keep(frames_with_steps(4, epochs=5), "MLP in stages")
    plain = keep(frames_of_a_run(4, epochs=5), "MLP")
    path = lab.write(
        "kept.ipynb",
        [
            f"%load_ext tnt_notebook\n%tnt_trace show {staged.name}",
            f"%tnt_trace compare {staged.name} {plain.name}",
            "%tnt_trace list",
        ],
    )
    notebook = open_notebook("kept.ipynb")
    notebook.page.set_viewport_size({"width": 1280, "height": 3000})  # for pictures of all of it
    for cell in range(3):
        notebook.run_and_wait(cell)
    shown = notebook.outputs(0)
    expect(shown.locator(".tnt-pill")).to_have_text("finished")
    expect(shown.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    for words in ("MLP in stages", "Last step", "Where a step goes", "by the formula"):
        expect(shown).to_contain_text(words)
    expect(notebook.outputs(1)).to_contain_text("samples per second of the latest steps")
    expect(notebook.outputs(2)).to_contain_text(plain.name)
    notebook.screenshots("trace-shown", shown)
    notebook.screenshots("trace-compared", notebook.outputs(1))
    for cell in (0, 1):
        expect_buttons_beside(notebook.outputs(cell).locator(".js-plotly-plot"))
    notebook.screenshot("trace-buttons", notebook.outputs(1))
    notebook.save()
    assert len(json.dumps(json.loads(path.read_text())["cells"][0]["outputs"])) < 500_000


def expect_buttons_beside(figure: Locator) -> None:
    """Plotly's buttons, which come with the pointer, lie over no title, which is a legend, too, and
    over no plot."""
    figure.hover()
    buttons = figure.locator(".modebar-group").first
    expect(buttons).to_be_visible()
    bar = buttons.bounding_box()
    assert bar
    for one in [*figure.locator(".annotation").all(), *figure.locator(".plot .points").all()]:
        box = one.bounding_box()
        assert box and box["x"] + box["width"] <= bar["x"]


def test_a_run_of_another_process_is_followed_and_leaves_its_figure(
    lab: Lab, open_notebook: Open, stop_signal: threading.Event
) -> None:
    frames = frames_with_steps(4, epochs=5)
    writer = run_writer.begin("MLP elsewhere", 4, stops_on=signal.SIGUSR1)
    lab.write("follow.ipynb", [f"%load_ext tnt_notebook\n%tnt_trace show {writer.folder.name}"])
    for frame in frames[:10]:
        writer.write(frame)
    notebook = open_notebook("follow.ipynb")
    notebook.run_and_wait(0)
    where = notebook.page.locator(".tnt-where")
    expect(where).to_contain_text("epoch 1 of 5")
    for frame in frames[10:40]:
        writer.write(frame)
    expect(where).to_contain_text("epoch 4 of 5")
    notebook.screenshot("trace-followed", notebook.outputs(0))
    notebook.page.locator(".tnt-stop").click()
    expect(notebook.page.locator(".tnt-pill")).to_have_text("stopping …")
    assert stop_signal.wait(10)
    for frame in frames[40:]:
        writer.write(frame)
    writer.close()
    expect(notebook.page.locator(".tnt-pill")).to_have_text("finished")
    expect(notebook.outputs(0).locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(notebook.outputs(0)).to_contain_text("Last step")
