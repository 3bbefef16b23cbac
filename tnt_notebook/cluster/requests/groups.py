"""Groups of ranks that work side by side: which ranks, and one request on each group at a time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.requests.cell_queue import CellQueue
from tnt_notebook.cluster.requests.engines import Engines
from tnt_notebook.cluster.requests.execution import Execution, RanksDied, RanksStuck
from tnt_notebook.cluster.requests.failure import Failure, rank_error
from tnt_notebook.protocol import Call
from tnt_notebook.words import number

_DIVIDE_S = 120.0  # to open links; as much as MPI may take for it
_KILLED_S = 10.0  # until it is known that a rank has been killed
_POLL_S = 0.05


class RanksKilled(RanksDied):
    """Ranks of a group could not be freed, and were killed.

    Attributes:
        why: what other ranks of it had raised, and who was killed, in a sentence.
    """

    def __init__(self, ranks: list[int], failures: Mapping[int, Failure]) -> None:
        super().__init__(ranks)
        was = number(len(ranks), "was", "were")
        killed = f"{ranks_label(ranks)} did not end, and {was} killed."
        raised = f"{rank_error(failures)}; " if failures else ""
        self.why = f"{raised}{killed}"


def groups_of(living: Sequence[int], hosts: Mapping[int, str], each: int) -> list[list[int]]:
    """As many groups of so many ranks as there can be; of ranks of one host, as far as they go.

    Args:
        living: ranks, ascending.
        hosts: the host of each.
    """
    by_host: dict[str, list[int]] = {}
    for rank in living:
        by_host.setdefault(hosts[rank], []).append(rank)
    whole = [
        ranks[i : i + each]
        for ranks in by_host.values()
        for i in range(0, len(ranks) - each + 1, each)
    ]
    taken = {rank for group in whole for rank in group}
    left = [rank for rank in living if rank not in taken]
    return whole + [left[i : i + each] for i in range(0, len(left) - each + 1, each)]


def divide(queue: CellQueue, engines: Engines, groups: list[list[int]]) -> None:
    """Makes each group a world of its own. To be called where it is the cluster's turn.

    Raises:
        DeathError: a rank has died meanwhile.
        RankError: there are no links between the ranks of a group.
    """
    execution = Execution(engines, engines.living).call(Call.DIVIDE, groups)
    queue.follow(execution, timeout=_DIVIDE_S)
    if execution.failures:
        raise rank_error(execution.failures)


def begin(
    engines: Engines,
    group: Sequence[int],
    call: Call,
    *arguments: Any,
    on_data: Callable[[dict[str, Any]], None],
    on_tick: Callable[[], None],
) -> Execution:
    """Begins a request on a group; what becomes of other ranks does not matter to it.

    Raises:
        RanksDied: some are not there.
    """
    execution = Execution(engines, group, on_data, on_tick=on_tick, clears=False, needs=group)
    return execution.call(call, *arguments)


def follow(engines: Engines, execution: Execution) -> None:
    """Waits for a request on a group. Ranks that cannot be freed are killed: no others wait for
    them, and they would never be free for another request.

    Raises:
        RanksDied: ranks of the group died.
        RanksKilled: or were killed.
    """
    try:
        execution.wait()
    except RanksStuck as stuck:
        there = [rank for rank in stuck.stuck if rank in engines.client.ids]
        if there:
            engines.client.send_signal(int(signal.SIGKILL), targets=there, block=False)
        deadline = time.monotonic() + _KILLED_S
        while not {*there} <= {*engines.dead()} and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        raise RanksKilled(stuck.stuck, execution.failures) from None
