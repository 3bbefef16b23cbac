"""Runs the browser side in Node.js."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def node(*arguments: str) -> str:
    """What Node.js prints; the test is skipped where it is not installed, which CI forbids."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("Node.js is not installed: tests of the browser side did not run")
    done = subprocess.run(
        [path, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_node(script: str) -> str:
    """What a module prints."""
    return node("--input-type=module", "-e", script)
