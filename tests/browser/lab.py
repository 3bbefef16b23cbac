"""A real JupyterLab or Notebook 7 on a free port, and a page of a real browser to work in."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import nbformat
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

START_S = 60.0
VIEWPORT: ViewportSize = {"width": 1280, "height": 1000}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

#: Of each application: the option that shows it to scripts of the page, and where notebooks open.
APPLICATIONS = {
    "jupyterlab": ("LabApp.expose_app_in_browser", "lab/tree"),
    "notebook": ("JupyterNotebookApp.expose_app_in_browser", "notebooks"),
}
IDLE = "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
}"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
RUN = """(cell) => {
  const app = window.jupyterapp;
  app.shell.currentWidget.content.activeCellIndex = cell;
  void app.commands.execute("notebook:run-cell");
}"""
FORGET_NUMBER = """(cell) => {
  window.jupyterapp.shell.currentWidget.content.model.cells.get(cell).executionCount = null;
}"""
OPEN = """async path => {
  await window.jupyterapp.commands.execute("docmanager:open", { path, factory: "Notebook" });
}"""
OPENED = "path => window.jupyterapp.shell.currentWidget?.context?.path === path"
CLOSE = """async (last) => {
  const all = [...window.jupyterapp.shell.widgets("main")];
  const { kernel } = all.find((one) => one.sessionContext).sessionContext.session;
  await kernel.requestExecute({ code: last, silent: true, store_history: false }).done;
  for (const one of all) one.dispose();
}"""
CHANGE_THEME = """async theme => {
  await window.jupyterapp.commands.execute("apputils:change-theme", { theme });
}"""
HAS_THEME = "theme => document.body.dataset.jpThemeName === theme"
SET_SOURCE = """([cell, source]) => {
  const { model } = window.jupyterapp.shell.currentWidget.content;
  model.cells.get(cell).sharedModel.setSource(source);
}"""


class Lab:
    """A JupyterLab server with a home of its own: nothing of the user's is read or written.

    Args:
        root: An empty folder; notebooks lie in ``root / "notebooks"``.
        environment: Added to the environment of the server and its kernels.
        application: JupyterLab, or Notebook 7.
        python: Runs the server; kernels are those of this process.
    """

    def __init__(
        self,
        root: Path,
        environment: dict[str, str] | None = None,
        application: Literal["jupyterlab", "notebook"] = "jupyterlab",
        python: str = sys.executable,
    ) -> None:
        exposing, self._path = APPLICATIONS[application]
        self.notebooks = root / "notebooks"
        self.notebooks.mkdir(parents=True)
        self._log = root / "jupyterlab.log"
        self._token = secrets.token_hex(16)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("w") as log:
            self._server = subprocess.Popen(
                [python, "-m", application, "--no-browser", "--allow-root",
                 "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0",
                 f"--{exposing}=True", f"--IdentityProvider.token={self._token}"],
                env={**os.environ, **_own_home(root), **(environment or {})},
                cwd=self.notebooks, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._wait_until_it_answers()
        # A first start asks whether to fetch news, in a box that covers the notebook.
        quiet = {"fetchNews": "false", "checkForUpdates": False}
        self.setting("apputils-extension:notification", quiet)
        # Else cells out of sight are not in the page, and counting cells goes wrong.
        self.setting("notebook-extension:tracker", {"windowingMode": "none"})

    def close(self) -> None:
        """Ends the server and, with it, its kernels."""
        self._server.terminate()
        self._server.wait(timeout=30)

    def setting(self, plugin: str, values: dict[str, Any]) -> None:
        """Sets what a person would set in JupyterLab's settings editor."""
        path = f"/lab/api/settings/@jupyterlab/{plugin}"
        self._request("PUT", path, {"raw": json.dumps(values)})

    def write(self, name: str, cells: Iterable[str]) -> Path:
        """Writes a notebook with these code cells."""
        write_notebook(self.notebooks / name, cells)
        return self.notebooks / name

    def shut_down_kernels(self) -> None:
        """Ends all kernels, of which each may be that of several notebooks."""
        for kernel in self._request("GET", "/api/kernels"):
            self._request("DELETE", f"/api/kernels/{kernel['id']}")

    def use_kernel(self, name: str, kernel: str | None) -> str:
        """Gives a notebook a kernel that other notebooks have had; starts one where it has ended.

        Returns:
            The id of the kernel.
        """
        running = self._request("GET", "/api/kernels")
        if kernel not in [one["id"] for one in running]:
            kernel = self._request("POST", "/api/kernels", {"name": "python3"})["id"]
        session = {"path": name, "name": name, "type": "notebook", "kernel": {"id": kernel}}
        self._request("POST", "/api/sessions", session)
        return str(kernel)

    def open(
        self, browser: Browser, name: str, *, theme: str = "light", page: Page | None = None
    ) -> Notebook:
        """Opens a notebook, and waits until its kernel can be used.

        Args:
            browser: The browser.
            name: File name of a notebook in `notebooks`.
            theme: ``"light"`` or ``"dark"``.
            page: Where a JupyterLab of this server is open already; a fresh page when None.
        """
        address = f"{self.url}/{self._path}/{name}"
        if page is None:
            self.setting("apputils-extension:themes", {"theme": THEMES[theme]})
            page = browser.new_page(viewport=VIEWPORT)
            page.goto(f"{address}?reset&token={self._token}")
            return Notebook(page, name, address)
        page.set_viewport_size(VIEWPORT)
        page.mouse.move(0, 0)
        page.evaluate(OPEN, name)
        page.wait_for_function(OPENED, arg=name)
        notebook = Notebook(page, name, address)
        notebook.change_theme(theme)
        return notebook

    def is_busy(self) -> bool:
        """Whether a kernel has something to do."""
        kernels = self._request("GET", "/api/kernels")
        return any(kernel["execution_state"] != "idle" for kernel in kernels)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._server.poll() is None:
            try:
                self._request("GET", "/api/status")
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
            else:
                return
        self._server.kill()
        raise RuntimeError(f"JupyterLab did not start:\n{self._log.read_text()}")

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")


def drag(where: Locator, start: tuple[float, float], end: tuple[float, float]) -> None:
    """With the pointer, from one place of an element to another; waits until it no longer moves."""
    mouse = where.page.mouse
    for (x, y), press in ((start, mouse.down), (end, mouse.up)):
        where.hover(position={"x": x, "y": y})
        press()


def write_notebook(path: Path, cells: Iterable[str]) -> None:
    """A notebook with these code cells."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)


Open = Callable[..., "Notebook"]


class Notebook:
    """A notebook open in a browser's page."""

    def __init__(self, page: Page, name: str, address: str) -> None:
        self.page = page
        self.name = name
        self._address = address
        self.wait_until_idle()

    @property
    def cells(self) -> Locator:
        """The cells of the notebook in front, from the top."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")

    def outputs(self, cell: int) -> Locator:
        """The output area of a cell, counted from 0."""
        return self.cells.nth(cell).locator(".jp-Cell-outputArea")

    def wait_until_idle(self) -> None:
        """Waits until the notebook is loaded and its kernel has nothing to do."""
        self.page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext")
        self.page.evaluate(READY)
        self.page.wait_for_function(IDLE, timeout=60_000)

    def change_theme(self, theme: str) -> None:
        """To ``"light"`` or ``"dark"``, as JupyterLab's menu does."""
        self.page.evaluate(CHANGE_THEME, THEMES[theme])
        self.page.wait_for_function(HAS_THEME, arg=THEMES[theme])

    def restart_kernel(self) -> None:
        """What the button does: a new kernel, and new connections to it."""
        self.page.evaluate(RESTART)
        self.wait_until_idle()

    def run(self, cell: int) -> None:
        """Runs a cell, counted from 0, and does not wait for its end."""
        self.page.evaluate(RUN, cell)

    def set_source(self, cell: int, source: str) -> None:
        """Writes another source into a cell."""
        self.page.evaluate(SET_SOURCE, [cell, source])

    def run_and_wait(self, cell: int, timeout_s: float = 300) -> None:
        """Runs a cell and waits until it has ended."""
        number = re.compile(r"\[\d+\]:")
        prompt = self.prompt(cell)
        self.page.evaluate(FORGET_NUMBER, cell)  # a new kernel may give the same one
        expect(prompt).not_to_have_text(number)
        self.run(cell)
        expect(prompt).to_have_text(number, timeout=1000 * timeout_s)

    def prompt(self, cell: int) -> Locator:
        """What stands left of a cell: ``[3]:``."""
        return self.cells.nth(cell).locator(".jp-InputPrompt")

    def save(self) -> None:
        """Saves the notebook and waits until it is on disk."""
        with self.page.expect_response(
            lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url
        ):
            self.page.keyboard.press("Control+s")

    def refresh(self) -> None:
        """What a person does with F5, where nothing else was open."""
        self.page.goto(f"{self._address}?reset")
        self.wait_until_idle()

    def close(self, last: str = "") -> None:
        """Closes all that is open in the page, and leaves page and kernel to other notebooks, after
        the kernel has run some last Python.
        """
        self.page.evaluate(CLOSE, last)

    def screenshot(self, name: str, what: Locator | None = None) -> None:
        """A picture of the page, or of a part of it, in the folder ``$TNT_SCREENSHOTS``, if set."""
        if folder := os.environ.get("TNT_SCREENSHOTS"):
            (what or self.page).screenshot(path=Path(folder) / f"{name}.png")

    def screenshots(self, name: str, what: Locator) -> None:
        """The same, in a dark and in a light theme."""
        for theme in ("dark", "light") if "TNT_SCREENSHOTS" in os.environ else ():
            self.change_theme(theme)
            self.screenshot(f"{name}-{theme}", what)


def _own_home(root: Path) -> dict[str, str]:
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    folders = {name: root / name.lower() for name in (*names, "JUPYTERLAB_SETTINGS_DIR")}
    folders["JUPYTERLAB_WORKSPACES_DIR"] = root / "workspaces"
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    return {name: str(folder) for name, folder in folders.items()}
