"""Fixtures of all tests."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cases import THOROUGH
from tests.support.rank_pool import RankPool
from tests.support.shared_cluster import SharedCluster
from tnt_notebook.cluster.output import cell_output

# How long an example takes says nothing here, where other tests run beside it.
settings.register_profile(
    "tests", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Real MPI ranks: ``ranks.run(3, function, *args)`` gives what each of 3 ranks returned."""
    pool = RankPool(tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def shared_clusters(short_leases: None) -> Iterator[dict[int, SharedCluster]]:
    """Of two ranks, and of three."""
    clusters = {ranks: SharedCluster(ranks) for ranks in (2, 3)}
    yield clusters
    for cluster in clusters.values():
        cluster.stop()


def shared(ranks: int, taken: Callable[[SharedCluster], Any]) -> Callable[..., Iterator[Any]]:
    """A fixture: what `taken` gives of a cluster that other tests have had and will have."""

    @pytest.fixture
    def fixture(shared_clusters: dict[int, SharedCluster]) -> Iterator[Any]:
        with taken(shared_clusters[ranks]) as given:
            yield given

    return fixture


pair, cluster = (shared(ranks, SharedCluster.used) for ranks in (2, 3))
two_ranks, three_ranks = (shared(ranks, SharedCluster.lent) for ranks in (2, 3))


@pytest.fixture(scope="session", autouse=True)
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where all processes of the tests keep runs: not where the user's are."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TNT_RUNS_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def short_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test leaves without an owner lives no longer than a test needs to find it again; and
    ranks load Keras when they need it, which most tests never do."""
    folder = tmp_path_factory.mktemp("config")
    chosen = {"keep": 0.01, "fit_hours": 0.02, "preload": "nothing"}
    (folder / "tnt_config.json").write_text(json.dumps({"ClusterDefaults": chosen}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_CONFIG_PATH", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_merging() -> Iterator[None]:
    """However late a rank of a busy machine is, what it prints like others is shown with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_output, "HOLD_S", 60.0)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests run in ``make test-all`` only."""
    if THOROUGH:
        return
    config.hook.pytest_deselected(items=[i for i in items if i.get_closest_marker("thorough")])
    items[:] = [item for item in items if not item.get_closest_marker("thorough")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With ``TNT_NO_SKIPS=1``, where all that tests need is installed, a skip is a failure.

    But for what no installation can give: where the machine forbids namespaces, there are no
    emulated hosts.
    """
    forbidden = "this machine does not allow it: "
    reports = terminalreporter.stats.get("skipped", [])
    skipped = [report for report in reports if forbidden not in str(report.longrepr)]
    if skipped and os.environ.get("TNT_NO_SKIPS") == "1":
        terminalreporter.line(f"TNT_NO_SKIPS=1, and {len(skipped)} tests were skipped", red=True)
        terminalreporter._session.exitstatus = pytest.ExitCode.TESTS_FAILED
