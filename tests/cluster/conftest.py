"""Real engines: three ranks shared by the tests of a file."""

import time
from collections.abc import Callable, Iterator

import pytest

from tnt_notebook.cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three ranks; a test that breaks them starts its own instead."""
    cluster = Cluster(3)
    yield cluster
    cluster.stop()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until something is so, with a bound."""

    def wait(condition: Callable[[], object], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not become so"
            time.sleep(0.02)

    return wait
