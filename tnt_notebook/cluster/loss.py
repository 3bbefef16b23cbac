"""What a person is told of ranks that have died, or could not be freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tnt_notebook.cluster.output import ranks_label
from tnt_notebook.cluster.place import place
from tnt_notebook.errors import ClusterError, DeathError, RankError
from tnt_notebook.words import number


def death_error(
    ranks: Sequence[int],
    seats: Sequence[Mapping[str, Any]],
    why: str,
    living: Sequence[int],
    last_words: str,
) -> DeathError:
    """The error of ranks that have died.

    Args:
        seats: of all ranks, with their ``host``.
        why: in a few words; "" where that is not known.
        living: ranks that live on, with their variables.
        last_words: of the ranks, MPI, and the batch system.
    """
    hosts = ", ".join(sorted({seats[rank]["host"] for rank in ranks}))
    next_step = "%tnt_cluster restart starts the ranks anew; variables on them are lost."
    if living:
        live, they = number(len(living), "lives", "live"), number(len(living), "its", "their")
        other = number(len(ranks), "the other", "the others")
        next_step = (
            f"{ranks_label(living)} {live}, and so do {they} variables: the next cell runs there. "
            f"%tnt_cluster restart --missing starts {other} again, without --missing all ranks."
        )
    said = f"{ranks_label(ranks)} died on {hosts}{why and f': {why}'}. {next_step}"
    return DeathError(f"{said}\n\n{last_words}", list(ranks))


def stuck_error(raised: RankError, stacks: Mapping[int, str]) -> ClusterError:
    """The error of ranks that could not be freed, so that all were started again.

    Args:
        raised: what the others raised.
        stacks: what those have written of their threads, by rank.
    """
    where = [f"Rank {rank} was here:\n{place(stack)}" for rank, stack in stacks.items()]
    return ClusterError(
        f"{raised}\n{ranks_label(list(stacks))} did not end: in a call that cannot be interrupted. "
        "The engines were restarted: variables on all ranks are lost.\n\n"
        + "\n".join([*(raised.rendered or []), *where])
    )
