"""How fast a model trains on fewer and on more ranks, in the best way on each, with the same batch;
and from which number on more ranks add little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tnt_notebook.plan.best import Way
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.terms import limited_by, parts_of

#: More speed than this for twice the ranks is worth them.
WORTH_RANKS = 0.1

#: How many times as many ranks as asked for are looked at; and at how many smaller numbers at most,
#: since each takes a search of its own.
_BEYOND, _FEWER = 4, 7


def numbers_of_ranks(ranks: int, most: int | None = None) -> list[int]:
    """1, 2, 4, ... to what was asked for, and beyond; further apart where these are many.

    Args:
        most: that there can be; None: any number.
    """
    apart = 2 << (ranks.bit_length() - 1) // _FEWER
    fewer = [apart**n for n in range(_FEWER) if apart**n < ranks]
    more = [ranks * n for n in sorted({1, min(apart, _BEYOND), _BEYOND})]
    return [n for n in fewer + more if most is None or n <= most]


def row_of(plan: PipelinePlan) -> dict[str, Any]:
    """What to expect of the best way on a number of ranks, as plain data; parts of a step, as of
    :func:`~tnt_notebook.plan.terms.parts_of`, with ``_s``."""
    return {
        "ranks": plan.ranks * plan.alike, "replicas": plan.replicas, "stages": plan.ranks,
        "options": Way.of(plan).typed, "step_s": plan.step_s, "samples_per_s": plan.samples_per_s,
        "speedup": plan.speedup, "limited_by": limited_by(plan),
        **{f"{part}_s": seconds for part, seconds in parts_of(plan).items()},
    }  # fmt: skip


def levels_off(rows: Sequence[dict[str, Any]]) -> int | None:
    """The place of the number of ranks from which on twice as many add less than
    :data:`WORTH_RANKS`, to whichever that are more; None: they add more up to the last."""
    for place, few in enumerate(rows[:-1]):
        if all(_of_doubling(few, more) < WORTH_RANKS for more in rows[place + 1 :]):
            return place
    return None


def held_back_by(few: dict[str, Any], more: dict[str, Any]) -> str:
    """The part of a step that falls short most of what more ranks should make of it: ``layers``,
    ``stages``, ``exchange`` or ``overhead``."""
    ideal = few["ranks"] / more["ranks"]
    parts = ("layers", "stages", "exchange", "overhead")
    return max(parts, key=lambda part: more[f"{part}_s"] - ideal * few[f"{part}_s"])


def _of_doubling(few: dict[str, Any], more: dict[str, Any]) -> float:
    """By which part of it the speed grows for each doubling of ranks."""
    doublings = math.log2(more["ranks"] / few["ranks"])
    return (more["samples_per_s"] / few["samples_per_s"]) ** (1 / doublings) - 1
