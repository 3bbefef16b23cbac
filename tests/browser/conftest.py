"""Fixtures for tests in a real JupyterLab and a real browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tnt_notebook
from tests.support.chromium import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Lab, Notebook


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
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab of its own, whose kernels see the package under test and `driver`.

    It ends with these tests: it goes on dialling the ports of kernels that it has shut down, and
    that would block an mpiexec of a later test whose port happens to be one of them.
    """
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: no test in it did run")
    from tests.browser.lab import Lab

    server = Lab(tmp_path_factory.mktemp("lab"), environment_of_kernels())
    yield server
    server.close()


@pytest.fixture
def open_notebook(lab: Lab, browser: Browser) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook as `Lab.open` does; pages and kernels are closed after the test."""
    opened: list[Notebook] = []

    def open_one(name: str, theme: str = "light") -> Notebook:
        opened.append(lab.open(browser, name, theme=theme))
        return opened[-1]

    yield open_one
    for notebook in opened:
        notebook.page.close()
    lab.shut_down_kernels()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: ``$TNT_SCREENSHOTS``, or a temporary folder."""
    folder = Path(os.environ.get("TNT_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
