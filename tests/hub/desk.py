"""A user's desk behind a JupyterHub: their notebook in a page of a browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.cells import TRAIN
from tests.support.hub import Hub

if TYPE_CHECKING:
    from playwright.sync_api import Browser

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: no test in a browser did run"
).expect
from tests.browser.lab import Notebook, write_notebook  # noqa: E402  needs playwright

NAME = "work.ipynb"
FIT = "%%tnt_fit" + TRAIN.format(epochs=1_000_000)
#: Of a user, on a host: what there is, as JSON.
LEFT = """
import json, os, pathlib, pwd, sys
uid = pwd.getpwnam(sys.argv[1]).pw_uid
folders = ["/dev/shm", os.environ["TMPDIR"]]
files = [str(path) for f in folders for path in pathlib.Path(f).iterdir()]
lines = []
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if process.stat().st_uid == uid:
            lines.append((process / "cmdline").read_text().replace("\\0", " ")[:200])
    except OSError:
        pass  # it has ended
print(json.dumps([f for f in files if os.lstat(f).st_uid == uid] + list(filter(None, lines))))
"""


@contextmanager
def desk(hub: Hub, browser: Browser, user: str, cells: Iterable[str]) -> Iterator[Notebook]:
    """Logs a user in, and opens a notebook with these cells."""
    path = hub.host.home(user) / NAME
    write_notebook(path, cells)
    os.chown(path, hub.host.uids[user], hub.host.uids[user])
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    try:
        hub.log_in(page, user)
        for plugin, values in {
            "apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
            "notebook-extension:tracker": {"windowingMode": "none"},
        }.items():
            settings = f"/user/{user}/lab/api/settings/@jupyterlab/{plugin}"
            hub.ask("PUT", settings, {"raw": json.dumps(values)})
        address = f"{hub.url}/user/{user}/lab/tree/{NAME}"
        page.goto(f"{address}?reset")
        yield Notebook(page, NAME, address)
    finally:
        context.close()


def moves(notebook: Notebook, cell: int) -> int:
    """Waits until the live view under a cell goes on; the epoch that it shows."""
    where = notebook.outputs(cell).locator(".tnt-card .tnt-where").last
    where.scroll_into_view_if_needed(timeout=60_000)
    notebook.page.wait_for_function(
        "at => /epoch/.test(at?.innerText)", arg=where.element_handle(), timeout=300_000
    )
    before = where.inner_text()
    notebook.page.wait_for_function(
        "([at, before]) => at.innerText !== before",
        arg=[where.element_handle(), before],
        timeout=120_000,
    )
    shown = re.match(r"epoch (\d+)", where.inner_text())
    assert shown, where.inner_text()
    return int(shown[1])


def kernel(hub: Hub, user: str) -> dict[str, Any]:
    """The only kernel of a user."""
    (one,) = hub.ask("GET", f"/user/{user}/api/kernels")
    return one


def left(hub: Hub, user: str) -> list[str]:
    """Files and processes of a user."""
    return json.loads(hub.host.ask(LEFT, "root", user))
