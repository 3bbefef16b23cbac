"""Pictures of the card in each of its states, to be looked at: real fits, in a real JupyterLab.

    python -m tests.browser.states FOLDER        make pictures, into build/states

What is no card of a fit on this machine's two ranks, the card of 64, is driven by ``driver``.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

from nbconvert import HTMLExporter
from playwright.sync_api import Browser, Locator, expect

from tests.browser.conftest import environment_of_kernels
from tests.browser.lab import Lab, Notebook
from tests.support.chromium import chromium

START = "%load_ext tnt_notebook\n%tnt_cluster start -n 2"
CELL = """%%tnt_fit --name {name} {options}
import keras
from keras import layers
x = keras.random.normal((1024, 24, 24, 3), seed=1)
y = keras.ops.mean(x, axis=(1, 2)) * {scale}
body = [layers.Conv2D(16, 3, activation="relu") for _ in range(4)]
model = keras.Sequential([keras.Input((24, 24, 3)), *body, layers.GlobalAveragePooling2D(),
                          layers.Dense(3)])
model.compile(keras.optimizers.SGD({rate}), "mse", metrics=["mae"])
model.fit(x, y, batch_size=64, epochs={epochs}, validation_split=0.25, verbose=0)"""
KILL = """import os, signal
from tnt_notebook.magics import sessions
cluster = sessions[get_ipython()].cluster
os.kill(cluster.record.seats[1]["pid"], signal.SIGKILL)"""
MANY = "from driver import Run\nrun = Run('on 64 ranks', ranks=64, epochs=5000).start()"

#: The cells of the notebook, in their order.
CELLS = {
    "start": START,
    "fit": CELL.format(name="fit", options="", scale=1, rate=0.01, epochs=30),
    "stopped": CELL.format(name="stopped", options="", scale=1, rate=0.01, epochs=1000),
    "diverged": CELL.format(name="diverged", options="", scale="1e18", rate="1e30", epochs=1000),
    "attached": CELL.format(name="attached", options="", scale=1, rate=0.01, epochs=100),
    "attach": "%load_ext tnt_notebook\n%tnt_cluster attach",
    "dead": CELL.format(name="dead", options="", scale=1, rate=0.01, epochs=1000),
    "kill": KILL,
    "many": MANY,
    "end": "run.end()\n%tnt_cluster stop",
}
NUMBER = {name: number for number, name in enumerate(CELLS)}
ENDED_MS = 120_000
PAINTED_MS = 500  # what comes into sight is painted within this time


def main(folder: Path) -> None:
    """Makes them all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tnt-states-") as root, chromium() as browser:
        environment = environment_of_kernels() | {"TNT_RUNS_DIR": f"{root}/runs"}
        lab = Lab(Path(root) / "lab", environment)
        try:
            lab.write("states.ipynb", CELLS.values())
            _States(lab.open(browser, "states.ipynb"), folder).take(lab, browser)
        finally:
            lab.close()


class _States:
    """A notebook that goes through them, and where their pictures go."""

    def __init__(self, notebook: Notebook, folder: Path) -> None:
        self._notebook, self._folder = notebook, folder

    def take(self, lab: Lab, browser: Browser) -> None:
        notebook = self._notebook
        notebook.page.set_viewport_size({"width": 1100, "height": 1500})
        self._run("start", 120)
        self._run("fit")
        began = time.monotonic()
        for seconds in (1, 5, 12):
            notebook.page.wait_for_timeout(1000 * max(0.0, began + seconds - time.monotonic()))
            self._shoot(f"after-{seconds}-s", "fit")
        self._end("fit", "finished")
        self._run("stopped")
        self._wait_for_epochs("stopped")
        self._output("stopped").locator(".tnt-stop").click()
        self._end("stopped", "stopped")
        self._run("diverged")
        self._end("diverged", "failed|stopped|finished")
        self._run("attached")
        self._wait_for_epochs("attached")
        notebook.restart_kernel()
        self._run("attach")
        self._wait_for_epochs("attach")
        notebook.page.wait_for_timeout(2000)
        self._shoot("attached", "attach")
        self._end("attach", "finished")
        self._run("dead")
        self._wait_for_epochs("dead")
        self._run("kill")
        self._end("dead", "failed")
        self._run("many")
        notebook.page.wait_for_timeout(8000)
        self._shoot("many", "many")
        notebook.change_theme("dark")
        self._shoot("many-dark", "many")
        self._run("end")
        self._shoot("finished-dark", "fit")
        notebook.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
        notebook.page.set_viewport_size({"width": 480, "height": 1500})
        self._shoot("narrow-dark", "fit")
        notebook.change_theme("light")
        self._shoot("narrow", "fit")
        notebook.save()
        self._sent(lab, browser, lab.notebooks / "states.ipynb")

    def _sent(self, lab: Lab, browser: Browser, path: Path) -> None:
        """As somebody else sees it, who does not trust it; and as nbconvert exports it."""
        copy = lab.notebooks / "sent.ipynb"
        copy.write_text(path.read_text().replace("fit · finished", "sent · finished"))
        sent = lab.open(browser, copy.name)
        sent.page.set_viewport_size({"width": 1100, "height": 1500})
        sent.outputs(NUMBER["fit"]).screenshot(path=self._folder / "untrusted.png")
        page = browser.new_page(viewport={"width": 1100, "height": 1500})
        page.route("**", lambda route: route.abort())  # it would load libraries from the network
        page.set_content(HTMLExporter().from_filename(str(path))[0], wait_until="domcontentloaded")
        page.locator(".tnt-card").first.screenshot(path=self._folder / "exported.png")
        page.close()

    def _output(self, cell: str) -> Locator:
        return self._notebook.outputs(NUMBER[cell])

    def _run(self, cell: str, timeout_s: float = 60) -> None:
        self._notebook.run_and_wait(NUMBER[cell], timeout_s)

    def _wait_for_epochs(self, cell: str) -> None:
        self._output(cell).scroll_into_view_if_needed()  # what is out of sight is not drawn
        where = self._output(cell).locator(".tnt-where")
        expect(where).to_contain_text(re.compile(r"epoch ([3-9]|\d\d)"), timeout=ENDED_MS)

    def _end(self, cell: str, states: str) -> None:
        pill = self._output(cell).locator(".tnt-pill")
        expect(pill).to_have_text(re.compile(states), timeout=ENDED_MS)
        expect(self._output(cell).locator(".tnt-stop")).to_have_count(0)
        self._shoot(cell if cell != "attach" else "attached-end", cell)

    def _shoot(self, name: str, cell: str) -> None:
        self._output(cell).scroll_into_view_if_needed()
        self._notebook.page.wait_for_timeout(PAINTED_MS)
        self._output(cell).screenshot(path=self._folder / f"{name}.png")
        print(self._folder / f"{name}.png", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
