"""What ranks have skipped in a run, as one text for its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tnt_notebook.comm import World
from tnt_notebook.parallel.data.readers.damage import skipped_in_run
from tnt_notebook.words import number

#: How many each rank names, and how many the text does.
_OF_A_RANK, _IN_ALL = 200, 5


def skipped_by_all(over: World) -> str:
    """How many samples each rank could not read, and which; empty: none. Collective."""
    own = skipped_in_run()
    mine = [len(own), list(map(str, own[:_OF_A_RANK]))]
    if over.size == 1:
        return told([mine])
    return told([json.loads(each) for each in over.allgather_bytes(json.dumps(mine).encode())])


def told(of_ranks: Sequence[Sequence[Any]]) -> str:
    """The text: of each rank how many it could not read, and their names, of many the first. In
    other epochs another rank may have met the same."""
    counts = [count for count, _ in of_ranks]
    if not any(counts):
        return ""
    names = list(dict.fromkeys(name for _, names in of_ranks for name in names))
    all_named = max(counts) <= _OF_A_RANK
    total = len(names) if all_named else sum(counts)
    by = [f"{count} on rank {rank}" for rank, count in enumerate(counts) if count]
    ranks = f", {', '.join(by)}" if len(counts) > 1 else ""
    more = [f"{total - _IN_ALL} more"] if total > _IN_ALL else []
    return (
        f"{'' if all_named else 'up to '}{total} {number(total, 'sample', 'samples')} could not be "
        f"read, and {number(total, 'was', 'were')} skipped{ranks}: "
        f"{', '.join([*names[:_IN_ALL], *more])}"
    )
