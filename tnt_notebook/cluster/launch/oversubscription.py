"""More ranks than cores on this machine: what to say before they start, and how long that takes.

Each rank takes some seconds of a core until it answers. Ranks on one core take them one after the
other, and all answer at the end.
"""

from __future__ import annotations

import os

from tnt_notebook import words
from tnt_notebook.choices import BATCH_SYSTEMS

_MANY = 2.0  # ranks on a core: more take long to start
_START_S, _IN_JOB_S = 60.0, 180.0
_RANK_S = 15.0  # of a further rank on a core: two to three times what it takes on a slow one


def ranks_per_core(ranks: int, launcher: str) -> float:
    """How many ranks share a core, at least 1. Of other hosts nobody knows the cores before: what
    has chosen the hosts is taken to have chosen them well."""
    if launcher != "local":
        return 1.0
    return max(1.0, ranks / len(os.sched_getaffinity(0)))


def timeout_s(ranks: int, launcher: str) -> float:
    """Seconds until all ranks must answer that were launched, where nobody says it."""
    usual = _IN_JOB_S if launcher in BATCH_SYSTEMS else _START_S
    return usual + _RANK_S * (ranks_per_core(ranks, launcher) - 1)


def warning(ranks: int, launcher: str, timeout_s: float) -> str:
    """What to say before so many ranks are started, which must answer in that time; "" where each
    has a core."""
    shared = ranks_per_core(ranks, launcher)
    if shared <= 1:
        return ""
    cores = len(os.sched_getaffinity(0))
    these = words.number(cores, "the only core", f"the {cores} cores")
    said = f"{ranks} ranks share {these} of this machine, and train no faster than "
    said += f"{words.ranks(cores)}: -n {cores} gives each its own."
    if shared > _MANY:
        said += f" Up to {words.about(timeout_s)} may pass until all answer."
    return said
