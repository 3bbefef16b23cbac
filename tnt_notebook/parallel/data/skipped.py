"""What ranks have skipped in a run, as one text for its end."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tnt_notebook.comm import World
from tnt_notebook.parallel.data.readers.damage import skipped_in_run
from tnt_notebook.words import number

#: How many each rank names, and how many the text does.
_OF_A_RANK, _IN_ALL = 20, 5


def skipped_by_all(over: World) -> str:
    """How many samples each rank could not read, and which; empty: none. Collective."""
    own = skipped_in_run()
    if over.size == 1:
        return told([len(own)], list(map(str, own)))
    mine = json.dumps([len(own), list(map(str, own[:_OF_A_RANK]))]).encode()
    of_ranks = [json.loads(block) for block in over.allgather_bytes(mine)]
    return told([count for count, _ in of_ranks], [name for _, names in of_ranks for name in names])


def told(counts: Sequence[int], names: Sequence[str]) -> str:
    """The text: of the counts of ranks, and of names."""
    total, which = sum(counts), list(dict.fromkeys(names))
    if not total:
        return ""
    by = [f"{count} on rank {rank}" for rank, count in enumerate(counts) if count]
    ranks = f", {', '.join(by)}" if len(counts) > 1 else ""
    rest = max(0, total - min(len(which), _IN_ALL))
    more = [f"{rest} more"] if rest and len(which) > _IN_ALL else []
    return (
        f"{total} {number(total, 'sample', 'samples')} could not be read, and "
        f"{number(total, 'was', 'were')} skipped{ranks}: {', '.join([*which[:_IN_ALL], *more])}"
    )
