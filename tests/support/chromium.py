"""A headless chromium of this machine, for tests in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """It ends with the block; where there is none the test is skipped."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: no test in a browser did run"
    )
    from tests.browser.lab import BROWSER_FLAGS, find_browser

    path = find_browser()
    if path is None:
        pytest.skip("no chromium or chrome in PATH: no test in a browser did run")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield browser
        browser.close()
