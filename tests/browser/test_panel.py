"""The panel of JupyterLab: it shows clusters and runs, and types what magics do."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.accessible import expect_accessible
from tests.browser.lab import Lab, Notebook, Open
from tnt_notebook.cluster import Cluster

pytestmark = pytest.mark.browser

START_MS = 120_000
FIT = """%%tnt_fit --name digits
import keras, numpy
print("before training")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.zeros((64, 4)), numpy.zeros(64), batch_size=16, epochs=100_000)
"""

NO_CONSOLE = """() => {
  const running = [...window.jupyterapp.serviceManager.sessions.running()];
  return running.every((session) => session.type === "notebook");
}"""


@contextmanager
def panel_of(notebook: Notebook) -> Iterator[Locator]:
    """The panel, open in the page of a notebook as long as the block lasts."""
    notebook.page.get_by_role("tab", name="Clusters and runs of tnt_notebook").click()
    try:
        yield notebook.page.locator(".tnt-lab-panel")
    finally:
        notebook.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")


def click(where: Locator, button: str) -> None:
    where.get_by_role("button", name=button, exact=True).click()


def test_strangers_are_told_nothing(lab: Lab) -> None:
    for what in ("clusters", "options", "log?cluster=a&which=0"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{lab.url}/tnt/{what}")


def test_a_cluster_of_a_script_is_shown_and_left_alone(
    lab: Lab, open_notebook: Open, pair: Cluster
) -> None:
    pair.run("print('from a script')")
    lab.write("aside.ipynb", [""])
    notebook = open_notebook("aside.ipynb")
    with panel_of(notebook) as panel:
        cluster = panel.get_by_role("region", name=f"Cluster {pair.id}")
        stop = cluster.get_by_role("button", name="Stop", exact=True)
        expect(stop).to_have_attribute("title", re.compile("%tnt_cluster stop: it belongs to "))
        stop.focus()
        notebook.page.keyboard.press("Enter")
        expect(stop).to_have_attribute("aria-disabled", "true")
        expect(cluster.get_by_role("button", name="Attach")).to_have_count(0)
        click(cluster, "Output")
        output = notebook.page.locator(".tnt-lab-output")
        expect(output).to_contain_text("from a script")
        expect_accessible(notebook, ".tnt-lab-output")
        assert notebook.cells.count() == 1
        expect(notebook.cells.first.locator(".cm-content")).to_have_text("")
    assert [row.state for row in pair.status()] == ["idle", "idle"]


def test_a_cluster_from_its_form_to_its_end(lab: Lab, open_notebook: Open) -> None:
    lab.write("panel.ipynb", ["", FIT])
    notebook = open_notebook("panel.ipynb")
    with panel_of(notebook) as panel:
        click(panel, "Start ranks")
        form = panel.get_by_role("form")
        line = form.locator(".tnt-lab-line")
        form.get_by_label("ranks").fill("2")
        form.get_by_label("launcher").select_option("slurm")
        form.get_by_label("time", exact=True).fill("12h")
        expect(line).to_have_text("%tnt_cluster start -n 2 --launcher slurm --time 12h")
        notebook.screenshot("panel-form", notebook.page.locator("#main"))
        form.get_by_label("launcher").select_option("local")
        expect(line).to_have_text("%tnt_cluster start -n 2")
        expect(form).to_contain_text("in panel.ipynb")
        click(form, "Start")

        cluster = panel.locator(".tnt-lab-cluster", has_text="panel.ipynb")
        state = cluster.locator(".tnt-lab-state")
        expect(state).to_have_text("ready", timeout=START_MS)
        expect(notebook.outputs(0)).to_contain_text("2 ranks are ready")
        expect(notebook.cells.first).to_contain_text("%tnt_cluster start -n 2")
        rows = cluster.get_by_role("list", name="Ranks").get_by_role("listitem")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text(re.compile(r"\d+ MiB"))

        notebook.run_and_wait(1)
        expect(state).to_have_text("training")
        notebook.screenshot("panel-cluster", notebook.page.locator("#main"))
        live = cluster.get_by_role("button", name="Live card", exact=True)
        expect(live).to_be_visible(timeout=START_MS)  # its ranks load TensorFlow first
        live.click()
        tab = notebook.page.locator(".tnt-lab-run-tab")
        expect(tab).to_contain_text("%tnt_trace show")
        expect(tab.locator(".tnt-where")).to_contain_text(re.compile("epoch [1-9]"))
        notebook.screenshot("panel-run", notebook.page.locator("#main"))
        tab.locator(".tnt-stop").click()
        expect(tab.locator(".tnt-pill")).to_have_text("stopped")
        expect(panel.locator(".tnt-lab-runs li").first).to_contain_text("stopped")
        notebook.page.locator(".lm-TabBar-tab", has_text="digits").locator(
            ".lm-TabBar-tabCloseIcon"
        ).click()
        notebook.page.wait_for_function(NO_CONSOLE)  # the tab's own has ended with it

        rows.nth(1).get_by_role("button").click()
        output = notebook.page.locator(".tnt-lab-output")
        expect(output).to_contain_text("before training")
        expect(output.get_by_role("tab", name="rank 1")).to_have_attribute("aria-selected", "true")
        output.get_by_role("tab", name="rank 1").press("ArrowLeft")
        expect(output.locator(".tnt-lab-line")).to_have_text("%tnt_cluster logs 0")
        notebook.screenshot("panel-output", notebook.page.locator("#main"))
        click(panel, "Start ranks")
        expect_accessible(notebook, ".tnt-lab-panel")

        left = panel.get_by_role("region", name=cluster.get_attribute("aria-label") or "")
        click(cluster, "Detach")
        expect(left).to_contain_text(re.compile("ends in.*owned by nobody"))
        click(left, "Attach")
        expect(cluster).to_have_count(1)
        click(cluster, "Stop")
        expect(cluster).to_have_count(0)
        expect(notebook.page.locator(".jp-Notebook")).to_contain_text("cluster stopped")
