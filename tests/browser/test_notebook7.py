"""The live view in Jupyter Notebook 7: what JupyterLab shows, it shows as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import environment_of_kernels

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Lab

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: no test in a browser did run"
).expect

pytestmark = pytest.mark.browser

START = """
from driver import Run
from tests.dashboard.steps import step_of_a_pipeline

trace = lambda step: step_of_a_pipeline(noise=0.3, seed=step)
run = Run("MLP in stages", 4, epochs=50, trace=trace).start()
"""


@pytest.fixture(scope="module")
def classic(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server of Notebook 7."""
    pytest.importorskip("notebook", reason="Notebook 7 is not installed: no test in it did run")
    from tests.browser.lab import Lab

    server = Lab(tmp_path_factory.mktemp("notebook"), environment_of_kernels(), "notebook")
    yield server
    server.close()


def test_a_run_in_notebook_7(classic: Lab, browser: Browser, pictures: Path) -> None:
    classic.write("run.ipynb", [START, "run.end()"])
    notebook = classic.open(browser, "run.ipynb")
    notebook.run_and_wait(0)
    card = notebook.page.locator(".tnt-card")
    heading = card.locator(".tnt-step")
    where = card.locator(".tnt-where")
    for moving in (where, heading):
        expect(moving).to_have_text(re.compile(r"\d"))
        expect(moving).not_to_have_text(moving.inner_text())
    notebook.screenshot(pictures / "notebook-7-running.png")
    notebook.run_and_wait(1)
    outputs = notebook.outputs(0)
    expect(outputs.locator(".tnt-pill")).to_have_text("finished")
    expect(outputs.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    notebook.screenshot(pictures / "notebook-7-finished.png")
    notebook.page.close()
