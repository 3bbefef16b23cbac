"""Real engines: three ranks shared by the tests of a file."""

from collections.abc import Iterator

import pytest

from tnt_notebook.cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three ranks."""
    cluster = Cluster(3)
    yield cluster
    cluster.stop()
