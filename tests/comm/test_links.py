"""How ranks reach each other: what is asked for, what comes of it, and what is said about it."""

import contextlib
import os
import resource
from unittest import mock

import pytest

from tests.comm.calls import small_calls
from tests.support import rank_nodes
from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError


def facts(options, variables=()):
    """What a world tells of its links, if it works."""
    with mock.patch.dict(os.environ, variables):
        w = rank_nodes.make_world(rank_nodes.communicator, timeout_s=30, **options)
    try:
        small_calls(w)
        bucket = w.bucket(100_000)
        bucket.array[:] = w.rank
        assert (bucket.allreduce() == sum(range(w.size))).all()
        w.recover()
        return w.links.asked, w.links.node, w.links.network, w.links.describe(), w.links.reason
    finally:
        w.close()


SHARED = ((0, 0, 0), "mpi", "shared memory", "ranks of a host share memory")
ALONE = ((0, 1, 2), "mpi", "mpi")
MPI = ("mpi", *ALONE, "transport mpi was asked for")
OFF = ("auto", *ALONE, "TNT_SHARED_MEMORY=0 turns shared memory off")
WHY = "links are emulated, so each rank counts as a node of its own"
LINKED = ("auto", (0, 1, 2), "mpi", "mpi over emulated links of 5000 Mbit/s", WHY)


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ({"transport": "auto"}, {}, ("auto", *SHARED)),
        ({"transport": "shm"}, {}, ("shm", *SHARED)),
        ({"transport": "mpi"}, {}, MPI),
        ({}, {"TNT_TRANSPORT": "mpi"}, MPI),
        ({"transport": "shm"}, {"TNT_TRANSPORT": "mpi"}, ("shm", *SHARED)),
        ({}, {"TNT_SHARED_MEMORY": "0"}, OFF),
        ({"link_mbit": 5e3, "lanes": 2}, {"TNT_LINK": "7"}, LINKED),
        ({}, {"TNT_LINK": "5000"}, LINKED),
    ],
)
def test_links_are_those_that_the_program_and_the_environment_ask_for(
    ranks, options, variables, expected
):
    assert ranks.run(3, facts, options, variables) == [expected] * 3


def test_a_rank_alone_needs_no_links(ranks):
    assert ranks.run(1, facts, {}) == [("auto", (0,), "mpi", "none", "there is one rank")]


def refused(options, variables=()):
    try:
        facts(options, variables)
    except (ValueError, CommunicationError) as error:
        return type(error).__name__, str(error)


def test_an_unknown_transport_is_an_error_that_names_those_there_are(ranks):
    text = "transport 'rdma' is not one of auto, shm, mpi, gpi"
    assert ranks.run(2, refused, {"transport": "rdma"}) == [("ValueError", text)] * 2
    assert ranks.run(2, refused, {}, {"TNT_TRANSPORT": "rdma"}) == [("ValueError", text)] * 2


@pytest.mark.parametrize("lanes", [-1, 9])
def test_lanes_have_bounds(ranks, lanes):
    text = f"lanes must be 1 to 8, not {lanes}"
    assert ranks.run(2, refused, {"lanes": lanes}) == [("ValueError", text)] * 2


@pytest.mark.parametrize("rate", ["0", "-5", "inf", "nan", "fast", ""])
def test_a_link_has_a_rate(ranks, rate):
    text = f"a link has a number of Mbit/s above 0, not {rate!r}"
    assert ranks.run(2, refused, {}, {"TNT_LINK": rate}) == [("ValueError", text)] * 2


def test_no_memory_is_shared_over_an_emulated_link(ranks):
    text = f"transport shm is not possible: {WHY}"
    options = {"transport": "shm", "link_mbit": 100.0}
    assert ranks.run(2, refused, options) == [("CommunicationError", text)] * 2


@contextlib.contextmanager
def files_limited(size):
    """No file of this process may be larger; and shared memory is one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def without_shared_memory_on(rank, options):
    own = rank_nodes.communicator.rank
    with files_limited(1 << 20) if own == rank else contextlib.nullcontext():
        try:
            return facts(options)
        except CommunicationError as error:
            return str(error)


def test_one_rank_without_shared_memory_is_reached_by_mpi_and_all_are_told_why(ranks):
    outcomes = ranks.run(4, without_shared_memory_on, 2, {})
    assert len(set(outcomes)) == 1
    asked, node, network, _, reason = outcomes[0]
    assert (asked, network) == ("auto", "mpi")
    assert node.count(node[2]) == 1
    assert reason.startswith("rank 2: shared memory of ") and "File too large" in reason


def test_where_shared_memory_is_demanded_all_ranks_name_the_one_that_has_none(ranks):
    outcomes = ranks.run(4, without_shared_memory_on, 2, {"transport": "shm"})
    for text in outcomes:
        assert text.startswith("transport shm is not possible: rank 2: shared memory of ")
        assert text.endswith("File too large")
    # And nothing is left behind that disturbs another world.
    assert ranks.run(4, facts, {"transport": "shm"})[0][3] == "shared memory"


def ask_for_different_things(per_rank):
    own = rank_nodes.communicator.rank
    return refused(*per_rank[min(own, len(per_rank) - 1)])


@pytest.mark.parametrize(
    "per_rank",
    [
        [({"transport": "mpi"},), ({"transport": "auto"},)],
        [({"lanes": 1},), ({"lanes": 2},)],
        [({"link_mbit": 100.0},), ({},)],
        [({}, {"TNT_SHARED_MEMORY": "0"}), ({},)],
    ],
    ids=["transport", "lanes", "link", "environment"],
)
def test_ranks_that_ask_for_different_things_are_told_so(ranks, per_rank):
    for kind, text in ranks.run(3, ask_for_different_things, per_rank, timeout=30):
        assert kind == "CommunicationError"
        assert "the ranks ask for different" in text and "rank 0" in text and "rank 1" in text


def many_worlds():
    comm.world().barrier()
    before = len(os.listdir("/proc/self/fd"))
    for transport in ("auto", "mpi") * 10:
        w = rank_nodes.make_world(rank_nodes.communicator, transport=transport)
        w.bucket(1000).allreduce()
        w.close()
        del w
    return len(os.listdir("/proc/self/fd")) - before


def test_closed_worlds_leave_no_open_files(ranks):
    assert max(ranks.run(3, many_worlds)) <= 0
