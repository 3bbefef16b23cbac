"""A rank that fails, or does not come, frees the others with an error that names it."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from tests.support import rank_nodes
from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError, PeerError
from tnt_notebook.telemetry.events import EVENT_KINDS

WORLDS = [None, {"transport": "mpi"}, {"nodes": (0, 0, 1, 1)}, {"lanes": 2}]


def raise_on(rank):
    if comm.rank() == rank:
        raise ValueError("bad shard")
    started = time.monotonic()
    try:
        comm.world().barrier()
    except PeerError as error:
        return str(error), time.monotonic() - started
    return None


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_a_rank_that_raises_frees_the_others_and_is_named(ranks, world):
    outcomes = ranks.outcomes(4, raise_on, 2, world=world)
    assert outcomes[2][0] == "raised" and "bad shard" in outcomes[2][1]
    for rank in (0, 1, 3):
        kind, (message, seconds) = outcomes[rank]
        assert kind == "returned"
        assert message == (
            f"rank {rank} was freed from waiting in barrier, because rank 2: ValueError: bad shard"
        )
        assert seconds < 5


def sum_of_ranks():
    return int(comm.world().allreduce(np.array(comm.rank())))


def links():
    w = comm.world()
    return w.links.asked, w.links.describe(), w.node


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_after_a_failure_communication_works_again_many_times(ranks, world):
    before = ranks.run(4, links, world=world)
    for _ in range(20):
        ranks.outcomes(4, raise_on, 1, world=world)
        assert ranks.run(4, sum_of_ranks, world=world) == [6, 6, 6, 6]
    assert ranks.run(4, links, world=world) == before


def raise_as_soon_as_the_world_is_there():
    """No rank may still be busy with making its world when another one fails."""
    w = rank_nodes.make_world(rank_nodes.communicator, timeout_s=60)
    try:
        if w.rank == 0:
            w.abort("rank 0: gives up")
        with pytest.raises((CommunicationError, PeerError)):
            w.barrier()
        w.recover()
        return w.gather_numbers(w.rank)
    finally:
        w.recover()
        w.close()


def test_a_world_is_complete_on_all_ranks_before_one_can_fail(ranks):
    for _ in range(20):
        assert ranks.run(4, raise_as_soon_as_the_world_is_there) == [[0, 1, 2, 3]] * 4


def abort_amid_large_messages():
    """Rank 0 has sent megabytes that rank 1 has not asked for when rank 1 gives up."""
    w = comm.world()
    if w.rank == 1:
        w.abort("rank 1: gives up")
    with pytest.raises((PeerError, CommunicationError)):
        w.allreduce(np.ones(1 << 22, "float32"))
    w.recover()
    return float(w.allreduce(np.ones(1 << 20, "float32"))[-1])


@pytest.mark.parametrize(
    "world", [None, {"transport": "mpi"}, {"nodes": (0, 0, 1)}, {"link_mbit": 1e3}], ids=str
)
def test_messages_under_way_at_a_failure_do_not_reach_the_next_collective(ranks, world):
    for _ in range(5):
        assert ranks.run(3, abort_amid_large_messages, world=world) == [3.0, 3.0, 3.0]


def abort_with(reason):
    w = comm.world()
    if w.rank == 1:
        w.abort(reason)
    with pytest.raises((PeerError, CommunicationError)) as caught:
        w.barrier()
    return str(caught.value)


@pytest.mark.parametrize("letter", ["x", "é", "語", "😀", "\udcff"])
def test_reasons_of_any_length_and_letters_reach_all_ranks(ranks, letter):
    for shift in range(4):
        reason = "y" * shift + letter * 9000
        for text in ranks.run(2, abort_with, reason):
            assert "yyy"[:shift] + letter.replace("\udcff", "?") * 1000 in text
    assert ranks.run(2, sum_of_ranks) == [1, 1]


def wait_in_vain():
    w = comm.world()
    w.set_timeout(0.5)
    try:
        if w.rank == 0:
            w.barrier()
        else:
            while w.failure is None:
                pass
            w.barrier()
    except (PeerError, CommunicationError) as error:
        return type(error).__name__, str(error)
    finally:
        w.set_timeout(60)


@pytest.mark.parametrize("world", [None, {"transport": "mpi"}], ids=str)
def test_a_wait_ends_with_an_error_that_names_the_rank_and_the_operation(ranks, world):
    (kind, text), (peer_kind, peer_text) = ranks.run(2, wait_in_vain, world=world)
    assert kind == "TimedOutError" and "for rank 1 in barrier" in text
    assert peer_kind == "PeerError" and "for rank 1 in barrier" in peer_text


def send_when_waiting(w: comm.World, number: int) -> threading.Thread:
    """A thread that sends the process a signal when the next operation is under way."""
    ready = EVENT_KINDS.index("ready")
    known = np.count_nonzero(w.trace()["kind"] == ready)

    def watch():
        while np.count_nonzero(w.trace()["kind"] == ready) == known:
            pass
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def signalled(call, number, times):
    """Rank 1 gets a signal in a collective into which rank 0 does not come."""
    w, found = comm.world(), []
    usual = signal.default_int_handler if number == signal.SIGINT else _raise_value_error
    before = signal.signal(number, usual)
    try:
        for _ in range(times):
            began = time.monotonic()
            if w.rank == 1:
                watch = send_when_waiting(w, number)
            with pytest.raises((KeyboardInterrupt, ValueError, PeerError)) as caught:
                if w.rank == 0:
                    while w.failure is None:
                        pass
                CALLS[call](w)
            seconds = time.monotonic() - began
            if w.rank == 1:
                watch.join()
            w.recover()
            total = int(w.allreduce(np.array(w.rank)))
            w.recover()
            found.append((caught.typename, str(caught.value), seconds, total))
    finally:
        signal.signal(number, before)
    return found


def _raise_value_error(*_):
    raise ValueError("no more patience")


CALLS = {
    "barrier": lambda w: w.barrier(),
    "allreduce": lambda w: w.allreduce(np.ones(100_000)),
    "bucket": lambda w: w.bucket(1000).allreduce(),
    "group": lambda w: w.split(0).barrier(),
}


SIGNALS = [
    (signal.SIGINT, "KeyboardInterrupt", 10, None),
    (signal.SIGINT, "KeyboardInterrupt", 10, {"transport": "mpi"}),
    (signal.SIGALRM, "ValueError", 1, None),
]


@pytest.mark.parametrize(("number", "raised", "times", "world"), SIGNALS)
@pytest.mark.parametrize("call", CALLS)
def test_what_a_signal_raises_is_raised_where_the_rank_waits_and_frees_the_others(
    ranks, call, number, raised, times, world
):
    outcomes = ranks.run(3, signalled, call, number, times, world=world)
    for rank, found in enumerate(outcomes):
        for kind, text, seconds, total in found:
            assert kind == (raised if rank == 1 else "PeerError")
            said = "no more patience" if raised == "ValueError" else ""
            assert (text == said) if rank == 1 else f"because rank 1: {raised} in " in text
            assert seconds < 5
            assert total == 3


def use_after_close():
    w = rank_nodes.make_world(rank_nodes.communicator)
    w.barrier()
    w.close()
    w.close()
    with pytest.raises(PeerError, match="communication is closed"):
        w.barrier()
    return w.failure


def test_a_closed_world_refuses_to_work(ranks):
    assert ranks.run(2, use_after_close) == ["communication is closed"] * 2
