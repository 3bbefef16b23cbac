"""A headless chromium of this machine, for tests in a browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
         "disable-background-networking", "disable-component-update")  # fmt: skip

#: A page may take long to draw on a machine that runs three tests at a time.
expect.set_options(timeout=90_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    """It ends with the block; where there is none the test is skipped."""
    path = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if path is None:
        pytest.skip("no chromium or chrome in PATH: no test in a browser did run")
    with sync_playwright() as playwright:
        flags = [f"--{flag}" for flag in FLAGS]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()
