"""What an allreduce has to move at least, as a schedule: the limit that algorithms are held to.

Among p ranks with n bytes each, ``2 (p - 1) / p * n`` bytes must come to every rank from others
(P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
69(2), 2009). Here they come from one neighbour, in two halves, and nothing is added up:

    on one node                                  between nodes, in messages
    read, in place read and written back

    rank  0 <==> 1 <==> 2 <==> 0                 rank  0 ---> 1 ---> 2 ---> 0

Between nodes of several ranks they are the bytes that must come to each node, shared by its ranks;
what goes on within the nodes is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from tnt_notebook.comm.schedules import Place, Schedule, Step, Task, copy, receive, send

_BLOCK_BYTES = 16 * 1024  # stays in the cache between reading and writing


def shift(task: Task) -> Schedule:
    """The schedule of one rank; for the argument ``algorithm`` of an allreduce."""
    return _schedule(task, in_place=False)


def shift_in_place(task: Task) -> Schedule:
    """What an allreduce in place must move; for the same argument, and not of a bucket."""
    return _schedule(task, in_place=True)


def _schedule(task: Task, in_place: bool) -> Schedule:
    nodes: dict[int, list[int]] = {}
    for rank, node in enumerate(task.node):
        nodes.setdefault(node, []).append(rank)
    if len(nodes) == 1:
        return _within_memory(task, in_place)
    members = list(nodes.values())
    drivers = min(map(len, members))
    place = next(i for i, ranks in enumerate(members) if task.rank in ranks)
    driver = members[place].index(task.rank)
    if driver >= drivers:
        return Schedule([])
    before, behind = (members[(place + step) % len(members)][driver] for step in (-1, 1))
    share = task.count * (len(members) - 1) // len(members) // drivers
    return _in_messages(share, before, behind)


def _within_memory(task: Task, in_place: bool) -> Schedule:
    right, left = (task.rank + 1) % task.size, (task.rank - 1) % task.size
    half = task.count * (task.size - 1) // task.size
    block = min(half, _BLOCK_BYTES // task.element_bytes)
    own, there = Place("data", 0), Place("data", 0, right)
    moves: Iterator[Step] = iter(
        [copy(1, half, to=Place("output", 0), from_=there) for _ in range(2)]
    )
    if in_place:
        moves = _read_and_written_back(half, block, right)
    return Schedule(
        [
            send(0, 0, left, from_=own),  # it may
            receive(0, 0, right, to=own),
            *moves,
            send(1, 0, right, from_=own),  # I have
            receive(1, 0, left, to=own),
        ],
        data_count=task.count,
        scratch_count=block,
    )


def _read_and_written_back(count: int, block: int, rank: int) -> Iterator[Step]:
    for begin in range(0, count, max(block, 1)):
        some = min(block, count - begin)
        there, here = Place("data", begin, rank), Place("scratch", 0)
        yield copy(1, some, to=here, from_=there)
        yield copy(1, some, to=there, from_=here)


def _in_messages(count: int, before: int, behind: int) -> Schedule:
    own, found = Place("data", 0), Place("scratch", 0)
    return Schedule(
        [
            step
            for half in (0, 1)
            for step in (
                receive(half, count, before, to=found),
                send(half, count, behind, from_=own),
            )
        ],
        data_count=count,
        scratch_count=count,
    )
