"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rank_pool import RankPool


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Real MPI ranks: ``ranks.run(3, function, *args)`` gives what each of 3 ranks returned."""
    pool = RankPool(tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.stop()
