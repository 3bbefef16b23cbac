"""``%tnt_bench`` on a rank: measures, tells how far it is, and keeps the rules that came of it.

Only plain data goes back to the notebook.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tnt_notebook import comm
from tnt_notebook.comm import rules, tuning
from tnt_notebook.engine.progress import teller
from tnt_notebook.error_text import brief
from tnt_notebook.errors import RulesError
from tnt_notebook.protocol import Published


def measure(options: dict[str, Any]) -> dict[str, Any]:
    """Measures an allreduce. Collective over all ranks.

    Args:
        options: what :class:`tnt_notebook.comm.tuning.Question` takes.

    Returns:
        On rank 0 what :func:`tnt_notebook.comm.tuning.measure` gives; or ``{"refused": why}``.
    """
    over = comm.world()
    try:
        result = tuning.measure(over, tuning.Question(**options), _reports(over.rank))
    except ValueError as error:
        return {"refused": str(error)}
    except BaseException as error:  # Ctrl-C too: the others must not wait for this rank
        if not getattr(error, "peers_know", False):
            comm.abort(f"rank {over.rank}: {brief(error)}")
        raise
    return result if over.rank == 0 else {}


def save(result: dict[str, Any]) -> dict[str, str]:
    """Writes the rules that a result suggests; on one rank.

    Returns:
        ``{"file": path}``, or ``{"refused": why}``.
    """
    try:
        return {"file": str(rules.save(tuning.rules_of(result)))}
    except RulesError as error:
        return {"refused": str(error)}


def load() -> None:
    """Takes the saved rules into use. Collective over all ranks."""
    comm.world().load_rules()


def known_rules() -> dict[str, Any]:
    """The rules in use, in order, and the file of those that were saved. On one rank."""
    file = rules.path()
    return {
        "file": None if file is None else str(file),
        "saved": [dataclasses.asdict(rule) for rule in comm.world().rules],
        "default": [dataclasses.asdict(rule) for rule in rules.default()],
    }


def _reports(rank: int) -> tuning.Report:
    """Of rank 0 to the notebook: each that has a new size, and a few others."""
    tell = teller(Published.MEASURED)

    def take(report: dict[str, Any]) -> None:
        new = bool(report["result"]["limit"]) and report["round"] == report["result"]["rounds"]
        if rank == 0:
            tell(report, always=new)

    return take
