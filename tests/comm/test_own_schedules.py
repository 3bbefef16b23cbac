"""Collectives by schedules that the caller gives as Python functions."""

import time
from collections import Counter

import numpy as np
import pytest

from tests.comm import functions
from tests.comm.calls import digest_of, sweep
from tests.comm.reference import RANKS, TYPES
from tnt_notebook import comm
from tnt_notebook.comm import schedules
from tnt_notebook.errors import CommunicationError, PeerError

#: The last function of an allreduce is for ranks that share memory.
MAKERS = {
    "allreduce": (functions.exchange, functions.exchange_backwards, functions.look),
    "broadcast": (functions.relay,),
    "allgather": (functions.circle,),
}
WORLDS = [None, {"transport": "mpi"}, {"nodes": (0, 0, 1, 1)}, {"lanes": 2}]


@pytest.mark.parametrize(
    ("collective", "function"), [(name, each) for name, of in MAKERS.items() for each in of]
)
def test_a_function_is_proved_without_ranks(collective, function):
    for size in (1, 2, 3, 4, 7, 16):
        for count in (0, 1, 100):
            for root in {0, size - 1}:
                schedules.check(function, collective, size, count, root=root, node=[0] * size)


def on_the_world_and_a_group(dtype, shapes, makers):
    w = comm.world()
    group = w.split(w.rank == 0)
    digest_of(sweep(dtype, shapes, group, makers), group)
    return digest_of(sweep(dtype, shapes, w, makers), w)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", RANKS)
def test_functions_run_on_ranks_that_share_memory(ranks, n, dtype):
    shapes = ((0,), (1,), (3, 5), (1000,), (20_011,))
    assert len(set(ranks.run(n, on_the_world_and_a_group, dtype, shapes, MAKERS))) == 1


@pytest.mark.parametrize("world", WORLDS[1:], ids=str)
def test_functions_run_over_every_kind_of_link(ranks, world):
    makers, shapes = {**MAKERS, "allreduce": MAKERS["allreduce"][:2]}, ((1,), (70_001,))
    run = ranks.run(4, on_the_world_and_a_group, "float32", shapes, makers, world=world)
    assert len(set(run)) == 1


def made_how_often():
    w = comm.world()
    calls = Counter()

    def counted(task):
        calls[task.rank, task.count] += 1
        return functions.exchange(task)

    for _ in range(20):
        for count in (3, 5000):
            w.allreduce(np.ones(count), algorithm=counted)
    return w.rank, calls


def test_a_function_is_called_once_for_each_size(ranks):
    # And once more for rank 0, by which ranks notice that they have different functions.
    for rank, calls in ranks.run(3, made_how_often):
        assert calls == Counter([(rank, 3), (rank, 5000), (0, 3), (0, 5000)])


#: What is changed in which step of `exchange`, and what the error then says.
FAULTS = {
    "an action that is none": (0, {"action": "sort"}, "is not one of send, receive, copy, reduce"),
    "a peer beyond the ranks": (1, {"peer": 9}, "has no peer 9"),
    "too many elements": (0, {"count": 11}, "touches data[0:11] of 10 elements"),
    "less than no elements": (0, {"count": -1}, "has a place [0, -1)"),
    "a place before the first": (2, {"to": schedules.Place("scratch", -1)}, "has a place [-1, 9)"),
    "a send from the input": (
        1, {"from_": functions.INPUT}, "cannot have its place 'from_' in 'input'"
    ),
    "a copy to the input": (0, {"to": functions.INPUT}, "cannot have its place 'to' in 'input'"),
    "memory that is none": (
        0, {"to": schedules.Place("disk", 0)}, "cannot have its place 'to' in 'disk'"
    ),
    "scratch of another rank": (
        0, {"to": schedules.Place("scratch", 0, 1)}, "cannot reach scratch of rank 1"
    ),
    "memory of a rank that is none": (
        0, {"to": schedules.Place("data", 0, 7)}, "cannot reach data of rank 7"
    ),
}  # fmt: skip


def refusal(number, changes, on_ranks=()):
    """The error, and whether all are in step after it."""
    w = comm.world()
    faulty = functions.changed(number, on_ranks, **changes)
    with pytest.raises((ValueError, PeerError)) as caught:
        w.allreduce(np.ones(10), algorithm=faulty)
    if caught.type is ValueError and on_ranks:
        raise caught.value
    assert on_ranks or w.allreduce(np.array(1)) == w.size
    return str(caught.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_carried_out_is_refused_on_all_ranks(ranks, fault):
    number, changes, words = FAULTS[fault]
    for rank, text in enumerate(ranks.run(3, refusal, number, changes)):
        action = changes.get("action", ("copy", "send", "receive")[number])
        assert text == f"faulty of 3 ranks: rank {rank}, step {number} ({action}) {words}"


def test_a_rank_that_alone_refuses_frees_the_others_and_says_why(ranks):
    number, changes, words = FAULTS["too many elements"]
    outcomes = ranks.outcomes(3, refusal, number, changes, (1,))
    assert outcomes[1][0] == "raised" and words in outcomes[1][1]
    for rank in (0, 2):
        assert outcomes[rank][0] == "returned", outcomes[rank][1]
        assert (
            f"because rank 1: ValueError: faulty of 3 ranks: rank 1, step 0 (copy) {words}"
            in (outcomes[rank][1])
        )


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (functions.circular, "waits for ever"),
        (functions.unfinished, "waits for ever for rank 2"),
        (functions.changed(-1, with_=functions.WHOLE), "rank 0"),
    ],
    ids=["circular", "unfinished", "wrong sum"],
)
def test_what_is_wrong_with_a_function_is_told_without_ranks(function, words):
    with pytest.raises(ValueError, match=words):
        schedules.check(function, "allreduce", 3, 10)


def carry_out(name):
    """A function that is wrong, and a barrier; then all starts afresh."""
    w = comm.world()
    began = time.monotonic()
    w.set_timeout(1)
    try:
        with pytest.raises((CommunicationError, PeerError)) as caught:
            w.allreduce(np.ones(10), algorithm=getattr(functions, name))
            w.barrier()
            w.barrier()
    finally:
        w.set_timeout(60)
    seconds = time.monotonic() - began
    w.recover()
    return str(caught.value), seconds, int(w.allreduce(np.array(1)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("circular", ["waited 1 s for rank ", "in allreduce of float64[10]"]),
        # A message that nobody took is found by the next collective.
        (
            "unfinished",
            [
                "rank 2 is in another operation: here barrier",
                "there allreduce (sum) of 10 float64 by a schedule of its own",
            ],
        ),
    ],
)
@pytest.mark.parametrize("world", [None, {"transport": "mpi"}], ids=str)
def test_ranks_are_freed_from_a_function_that_is_wrong(ranks, name, words, world):
    for text, seconds, total in ranks.run(3, carry_out, name, world=world):
        assert all(word in text for word in words), text
        assert seconds < 6 and total == 3
