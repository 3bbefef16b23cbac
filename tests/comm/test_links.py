"""How ranks reach each other: what is asked for, what comes of it, and what is said about it."""

from __future__ import annotations

import contextlib
import os
import resource

import numpy as np
import pytest

from tests.comm import sweep
from tests.support import rank_nodes
from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError


@contextlib.contextmanager
def environment(**variables: str):
    """Variables of this process inside the ``with`` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def facts(variables=(), **options):
    """What a world tells of its links, if it works."""
    with environment(**dict(variables)):
        w = rank_nodes.make_world(rank_nodes.communicator, timeout_s=30, **options)
    try:
        sweep.small_calls(w)
        bucket = w.bucket(100_000)
        bucket.array[:] = w.rank
        assert (bucket.allreduce() == sum(range(w.size))).all()
        w.recover()
        return w.links.asked, w.links.node, w.links.network, w.links.describe(), w.links.reason
    finally:
        w.close()


def facts_of(options, variables=()):
    return facts(variables, **options)


SHARED = ((0, 0, 0), "mpi", "shared memory", "ranks of a host share memory")
ALONE = ((0, 1, 2), "mpi", "mpi")


@pytest.mark.parametrize("asked", ["auto", "shm"])
def test_ranks_of_one_host_share_memory(ranks, asked):
    assert ranks.run(3, facts_of, {"transport": asked}) == [(asked, *SHARED)] * 3


def test_shared_memory_is_not_used_where_mpi_is_asked_for(ranks):
    expected = ("mpi", *ALONE, "transport mpi was asked for")
    assert ranks.run(3, facts_of, {"transport": "mpi"}) == [expected] * 3


def test_the_environment_says_which_transport(ranks):
    expected = ("mpi", *ALONE, "transport mpi was asked for")
    assert ranks.run(3, facts_of, {}, {"TNT_TRANSPORT": "mpi"}) == [expected] * 3
    # What the program says counts more.
    facts_ = ranks.run(3, facts_of, {"transport": "shm"}, {"TNT_TRANSPORT": "mpi"})
    assert facts_ == [("shm", *SHARED)] * 3


def test_the_environment_turns_shared_memory_off(ranks):
    expected = ("auto", *ALONE, "TNT_SHARED_MEMORY=0 turns shared memory off")
    assert ranks.run(3, facts_of, {}, {"TNT_SHARED_MEMORY": "0"}) == [expected] * 3


def test_a_rank_alone_needs_no_links(ranks):
    outcome = ranks.run(1, facts_of, {})
    assert outcome == [("auto", (0,), "mpi", "none", "there is one rank")]


def refused(options, variables=()):
    try:
        facts(variables, **options)
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


@contextlib.contextmanager
def files_limited():
    """No file may be larger than 1 MiB, and shared memory is one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def without_shared_memory_on(rank, options):
    own = rank_nodes.communicator.rank
    with files_limited() if own == rank else contextlib.nullcontext():
        try:
            return facts(**options)
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
    assert ranks.run(4, facts_of, {"transport": "shm"})[0][3] == "shared memory"


def ask_for_different_things(per_rank):
    own = rank_nodes.communicator.rank
    return refused(*per_rank[min(own, len(per_rank) - 1)])


@pytest.mark.parametrize(
    "per_rank",
    [
        [({"transport": "mpi"},), ({"transport": "auto"},)],
        [({"lanes": 1},), ({"lanes": 2},)],
        [({}, {"TNT_SHARED_MEMORY": "0"}), ({},)],
    ],
    ids=["transport", "lanes", "environment"],
)
def test_ranks_that_ask_for_different_things_are_told_so(ranks, per_rank):
    for kind, text in ranks.run(3, ask_for_different_things, per_rank, timeout=30):
        assert kind == "CommunicationError"
        assert "the ranks ask for different" in text and "rank 0" in text and "rank 1" in text


def survive_failures(transport):
    """Links are made anew after a failure, and are the same."""
    w = rank_nodes.make_world(rank_nodes.communicator, timeout_s=30, transport=transport, lanes=2)
    try:
        before, found = w.links, []
        for _ in range(10):
            if w.rank == 1:
                w.abort("rank 1: gives up")
            with pytest.raises(Exception, match="rank 1: gives up"):
                w.barrier()
            w.recover()
            found.append(int(w.allreduce(np.array(1))))
            w.recover()
        return w.links == before, found
    finally:
        w.close()


@pytest.mark.parametrize("transport", ["auto", "shm", "mpi"])
def test_links_come_back_after_a_failure(ranks, transport):
    assert ranks.run(3, survive_failures, transport) == [(True, [3] * 10)] * 3


def open_files():
    return len(os.listdir("/proc/self/fd"))


def many_worlds():
    comm.world().barrier()
    before = open_files()
    for transport in ("auto", "mpi") * 10:
        w = rank_nodes.make_world(rank_nodes.communicator, transport=transport)
        w.bucket(1000).allreduce()
        w.close()
        del w
    return open_files() - before


def test_closed_worlds_leave_no_open_files(ranks):
    assert max(ranks.run(3, many_worlds)) <= 0
