"""Clusters that live as long as the test session, and are lent from test to test.

A start takes seconds, and TensorFlow on its ranks as many again; ranks that are there answer at
once. What a test leaves on them is removed after it. Where they do not answer then, or are not
all there, that test fails, and the next one gets new ranks.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tnt_notebook.cluster import Cluster
from tnt_notebook.errors import TntError

CLEAN_S = 180.0

#: On every rank after each test: nothing but what was there at first, and a world that is whole.
CLEAN = """
def clean(ranks):
    import os, sys

    first = sys.__dict__.setdefault("of_no_test", (set(globals()), dict(os.environ), os.getcwd()))
    names, environment, folder = first
    for name in set(globals()) - names:
        del globals()[name]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if "keras" in sys.modules:
        # Nor are all of TensorFlow's objects looked through after each test.
        sys.modules["keras"].backend.clear_session(free_memory=False)
    from tnt_notebook import comm
    import numpy

    world = comm.world()
    assert world.size == ranks == world.allreduce(numpy.ones(1))[0], world

clean({ranks})
del clean
"""


@contextmanager
def started(*ranks: int, **options: Any) -> Iterator[Cluster]:
    """A cluster of a test's own, which ends with the block; it loads nothing in advance."""
    cluster = Cluster(*ranks, **{"preload": "nothing", **options})
    try:
        yield cluster
    finally:
        cluster.stop()


class SharedCluster:
    """Ranks that are started when the first test wants them.

    Args:
        ranks: how many.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._cluster: Cluster | None = None

    @contextmanager
    def used(self) -> Iterator[Cluster]:
        """Within the block it is a test's, in this process.

        Raises:
            AssertionError: after the block: some ranks are not there, or do not answer.
        """
        yield self._started()
        self._clean()

    @contextmanager
    def lent(self) -> Iterator[str]:
        """Within the block it is nobody's, and any process may attach to it by this id.

        Raises:
            AssertionError: as `used`, or it has ended.
        """
        cluster = self._started()
        known = cluster.id
        cluster.let_go()
        yield known
        try:
            self._cluster = Cluster.attach(known, force=True)
        except TntError as error:
            self._cluster = None
            raise AssertionError(
                f"The test has ended the ranks that it was lent: {error}"
            ) from None
        self._clean()

    def stop(self) -> None:
        """Ends the ranks."""
        if self._cluster is not None:
            self._cluster.stop()
        self._cluster = None

    def _started(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._ranks)
            self._clean()
        return self._cluster

    def _clean(self) -> None:
        cluster = self._cluster
        with ThreadPoolExecutor() as threads:
            cleaning = threads.submit(cluster.run, CLEAN.format(ranks=self._ranks))
            try:
                cleaning.result(CLEAN_S)
            except Exception as error:
                self.stop()  # and with it the cleaning, if that goes on
                why = str(error) or f"they did not answer within {CLEAN_S:g} s."
                raise AssertionError(
                    f"The test did not leave the ranks as they have to be: {why}"
                ) from None
        (cluster.folder.path / "fit.json").unlink(missing_ok=True)
