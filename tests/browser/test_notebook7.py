"""The live view in Jupyter Notebook 7: what JupyterLab shows, it shows as well."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import environment_of_kernels
from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

START = """
from driver import Run
from tests.dashboard.steps import step_of_a_pipeline

trace = lambda step: step_of_a_pipeline(noise=0.3, seed=step)
run = Run("MLP in stages", 4, epochs=50, trace=trace).start()
"""


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server of Notebook 7."""
    server = Lab(tmp_path_factory.mktemp("notebook"), environment_of_kernels(), "notebook")
    yield server
    server.close()


def test_a_run_in_notebook_7(classic: Lab, browser: Browser) -> None:
    classic.write("run.ipynb", [START, "run.end()"])
    notebook = classic.open(browser, "run.ipynb")
    notebook.run_and_wait(0)
    card = notebook.page.locator(".tnt-card")
    heading = card.locator(".tnt-step")
    where = card.locator(".tnt-where")
    for moving in (where, heading):
        expect(moving).to_have_text(re.compile(r"\d"))
        expect(moving).not_to_have_text(moving.inner_text())
    notebook.screenshot("notebook-7-running")
    notebook.run_and_wait(1)
    outputs = notebook.outputs(0)
    expect(outputs.locator(".tnt-pill")).to_have_text("finished")
    expect(outputs.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    notebook.screenshot("notebook-7-finished")
    notebook.page.close()
