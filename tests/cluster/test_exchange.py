"""How ranks reach each other: as asked for, as told by status, or an error that says why not."""

import psutil
import pytest

from tests.support import gpi2
from tests.support.shared_cluster import started
from tnt_notebook import choices
from tnt_notebook.cluster import Cluster, Links
from tnt_notebook.cluster.launch.request import request
from tnt_notebook.cluster.requests.engines import reasons
from tnt_notebook.errors import ClusterError, RankError

SUM = (
    "import numpy as np\nfrom tnt_notebook import comm\nx = comm.world().allreduce(np.ones(999))[9]"
)

FAILURE = "from tnt_notebook import comm\nif comm.rank() == 1: raise ValueError('of no use')\n"


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have wishes of their own in the environment."""
    for name in ("TNT_TRANSPORT", "TNT_LANES", "TNT_LINK", "TNT_SHARED_MEMORY"):
        monkeypatch.delenv(name, raising=False)


def test_a_person_may_ask_for_as_many_lanes_as_the_backend_has():
    from tnt_notebook.comm import _kernels

    assert _kernels.max_lanes == choices.MAX_LANES


def test_lanes_are_as_asked_for_and_the_reason_for_a_transport_is_told(monkeypatch):
    monkeypatch.setenv("TNT_SHARED_MEMORY", "0")
    with started(2, lanes=2) as cluster:
        assert cluster.links == Links("mpi", "TNT_SHARED_MEMORY=0 turns shared memory off", 2)
        assert [(row.node, row.link) for row in cluster.status()] == [(0, "mpi"), (1, "mpi")]
        cluster.run(SUM)
        assert cluster.pull("x", 1) == 2


MEGABYTE = """
import time
import numpy as np
from tnt_notebook import comm
begin = time.monotonic()
x = comm.world().allreduce(np.ones(250_000, "float32"))
seconds = time.monotonic() - begin
"""


def test_an_emulated_link_is_told_and_takes_its_time():
    with started(2, link=80) as cluster:
        by, why = "mpi over emulated links of 80 Mbit/s", "links are emulated, so each rank counts"
        assert cluster.links == Links(by, f"{why} as a node of its own", 1)
        assert [(row.node, row.link) for row in cluster.status()] == [(0, "mpi"), (1, "mpi")]
        cluster.run(MEGABYTE)
        for rank in range(2):
            assert (cluster.pull("x", rank) == 2).all()
            assert cluster.pull("seconds", rank) >= 0.1  # each sends a megabyte


@gpi2.needed
def test_gpi_between_ranks_that_share_no_memory(monkeypatch):
    monkeypatch.setenv("TNT_SHARED_MEMORY", "0")
    with started(2, transport="gpi", lanes=2) as cluster:
        for _ in range(2):
            assert cluster.links == Links("gpi", "TNT_SHARED_MEMORY=0 turns shared memory off", 2)
            assert [(row.node, row.link) for row in cluster.status()] == [(0, "gpi"), (1, "gpi")]
            with pytest.raises(RankError, match="of no use"):
                cluster.run(FAILURE + SUM)
            cluster.run(SUM)
            assert cluster.pull("x", 1) == 2
            cluster.restart()


def test_the_environment_asks_too_and_the_argument_goes_first(monkeypatch):
    assert request(1).settings == {}
    monkeypatch.setenv("TNT_TRANSPORT", "mpi")
    monkeypatch.setenv("TNT_LANES", "3")
    monkeypatch.setenv("TNT_LINK", "1e3")
    told = {"TNT_TRANSPORT": "mpi", "TNT_LANES": "3", "TNT_LINK": "1e3"}
    assert request(1).settings == told
    asked = request(1, transport="shm", lanes=2, link=100)
    assert asked.settings == {"TNT_TRANSPORT": "shm", "TNT_LANES": "2", "TNT_LINK": "100.0"}
    for name, value, message in (
        ("TNT_LINK", "fast", "TNT_LINK=fast: it must be a number of Mbit/s above 0."),
        ("TNT_LANES", "two", "TNT_LANES=two: a rank has 1 to 8 progress threads."),
        ("TNT_TRANSPORT", "tcp", "TNT_TRANSPORT=tcp: it must be one of auto, shm, mpi, gpi."),
    ):
        monkeypatch.setenv(name, value)
        with pytest.raises(ClusterError, match=f"^{message}$"):
            request(1)


@pytest.mark.parametrize(
    ("transport", "name", "value", "why"),
    [
        ("shm", "TNT_SHARED_MEMORY", "0", "TNT_SHARED_MEMORY=0 turns shared memory off"),
        ("gpi", "TNT_GASPI_LIBRARY", "libNoSuchGPI2.so",
         "rank 0: GPI-2 was not found: libNoSuchGPI2.so: "),
    ],
)  # fmt: skip
def test_a_transport_that_is_not_possible_is_the_reason_and_nothing_stays(
    monkeypatch, tmp_path, transport, name, value, why
):
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("TNT_RUN_DIR", str(tmp_path))
    with pytest.raises(ClusterError) as error:
        Cluster(2, transport=transport)
    first, *refusals = str(error.value).splitlines()
    assert first == "Ranks ended while starting."
    said = f"transport {transport} is not possible: {why}"
    assert refusals and all(said in line and line.startswith("rank") for line in refusals)
    assert list(tmp_path.iterdir()) == []
    environments = [p.info["environ"] or {} for p in psutil.process_iter(["environ"])]
    assert str(tmp_path) not in [found.get("TNT_RUN_DIR") for found in environments]


def test_ranks_that_refuse_for_the_same_reason_are_told_once():
    log = "rank 1: no GPI-2\nrank 0: no GPI-2\nprterun detected that\nrank 2: another\n"
    assert reasons(log) == "ranks 0-1: no GPI-2\nrank 2: another"
    assert reasons("prterun detected that one or more processes\n") == ""
