"""Fixtures for tests in a real JupyterLab and a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import tnt_notebook
from tests.browser.lab import Lab, Notebook, Open
from tests.support.chromium import chromium

#: What a kernel runs between two tests.
FORGET = "__import__('driver').forget()"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A headless chromium of this machine."""
    with chromium() as browser:
        yield browser


def environment_of_kernels() -> dict[str, str]:
    """What lets kernels import the package under test, its tests, and `driver`."""
    package = Path(tnt_notebook.__file__).parents[1]
    path = [str(package), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, path))}


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab of its own, whose kernels see the package under test and `driver`.

    It ends with these tests: it goes on dialling the ports of kernels that it has shut down, and
    that would block an mpiexec of a later test whose port happens to be one of them.
    """
    server = Lab(tmp_path_factory.mktemp("lab"), environment_of_kernels())
    yield server
    server.close()


@pytest.fixture(scope="package")
def at_hand() -> dict[str, Any]:
    """The page and the kernel that tests leave to the next one."""
    return {"page": None, "kernel": None}


@pytest.fixture
def open_notebook(lab: Lab, browser: Browser, at_hand: dict[str, Any]) -> Iterator[Open]:
    """Opens a notebook as `Lab.open` does, in the page and with the kernel of the test before.

    A page that was closed, and a kernel that was ended or is busy, are no more at hand.
    """
    opened: list[Notebook] = []

    def open_one(name: str, theme: str = "light") -> Notebook:
        page = at_hand["page"]
        at_hand["kernel"] = lab.use_kernel(name, at_hand["kernel"])
        if page is not None and page.is_closed():
            page = None
        opened.append(lab.open(browser, name, theme=theme, page=page))
        at_hand["page"] = opened[-1].page
        return opened[-1]

    yield open_one
    at_hand["page"] = None
    if (opened and opened[-1].page.is_closed()) or lab.is_busy():
        lab.shut_down_kernels()
    elif opened:
        opened[-1].close(FORGET)
        at_hand["page"] = opened[-1].page
    for notebook in opened:
        if notebook.page is not at_hand["page"]:
            notebook.page.close()
