"""Makes ranks for a fit to go on with, after some have died or their job has ended."""

from __future__ import annotations

import time

from tnt_notebook.cluster.life.ranks import Ranks
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.errors import ClusterError, RankError
from tnt_notebook.protocol import Call
from tnt_notebook.words import number

_REGISTER_S = 30.0
_POLL_S = 0.05


def recover(cluster: Ranks, on_failure: str) -> str:
    """Makes ranks for a fit to go on with, after some have died.

    Args:
        on_failure: ``shrink``: those that live, where any does; else all of them.

    Returns:
        What was done, in a sentence.

    Raises:
        ClusterError: there is no way to go on.
    """
    lost = cluster.missing()
    if cluster.survives and lost and cluster.living:
        if on_failure == "shrink":
            return f"going on with {ranks_label(cluster.living)}"
        try:
            start_missing(cluster)
            return f"{ranks_label(lost)} {number(len(lost), 'was', 'were')} started again"
        except (ClusterError, RankError) as error:
            print(f"{ranks_label(lost)} cannot be started again alone: {error}", flush=True)
    survived = cluster.survives
    cluster.restart()
    return f"all ranks were started again{'' if survived else ': this MPI ends all with one'}"


def start_missing(cluster: Ranks) -> None:
    """Starts the ranks again that have died; the others keep their variables.

    Raises:
        ClusterError: no rank is missing, or those that live cannot start others.
    """
    if not cluster.missing():
        raise ClusterError("No rank is missing.")
    if not cluster.survives:
        raise ClusterError(
            "This MPI ends all ranks when one dies: %tnt_cluster restart starts all of them."
        )
    cluster.call(Call.FILL_SEATS)
    deadline = time.monotonic() + _REGISTER_S
    while missing := cluster.missing():
        if time.monotonic() > deadline:
            raise ClusterError(f"{ranks_label(missing)} did not register. Try %tnt_cluster restart")
        time.sleep(_POLL_S)
    cluster.take_back()
