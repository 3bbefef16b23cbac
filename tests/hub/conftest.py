"""A host with two users, and a JupyterHub for them."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser

from tests.support import hub as jupyterhub
from tests.support import shared_host
from tests.support.chromium import chromium
from tests.support.hub import Hub
from tests.support.shared_host import SharedHost


@pytest.fixture(scope="package")
def host() -> Iterator[SharedHost]:
    """A machine of alice's and bob's."""
    if problem := shared_host.unavailable():
        pytest.skip(problem)
    with shared_host.shared_host("alice", "bob") as host:
        yield host


@pytest.fixture(scope="package")
def hub(host: SharedHost) -> Iterator[Hub]:
    """A JupyterHub that starts servers as processes."""
    if problem := jupyterhub.unavailable():
        pytest.skip(problem)
    with closing(Hub(host)) as hub:
        yield hub


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A headless chromium of this machine."""
    with chromium() as browser:
        yield browser
