"""The tutorial about batch systems runs on a real Slurm, which this starts beside its kernel."""

from __future__ import annotations

import contextlib
import os

import pytest

from tests.support.slurm import slurm_here, unavailable

_ON_SLURM = "04-"
_started = pytest.StashKey[contextlib.ExitStack]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the first cell of that notebook starts a kernel, which inherits the environment."""
    if not item.path.name.startswith(_ON_SLURM):
        return
    if problem := unavailable():
        pytest.skip(f"this machine does not allow it: {problem}")
    if _started not in item.config.stash:
        stack = item.config.stash[_started] = contextlib.ExitStack()
        slurm = stack.enter_context(slurm_here())
        os.environ.update(slurm.environment)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Slurm ends after the last cell."""
    if nextitem is None or nextitem.path != item.path:
        stack = item.config.stash.get(_started, None)
        if stack is not None and item.path.name.startswith(_ON_SLURM):
            stack.close()
            del item.config.stash[_started]
            os.environ.pop("SLURM_CONF", None)
