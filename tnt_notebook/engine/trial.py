"""Trials of a sweep on a rank: the ranks are divided into groups, and each group trains by itself.

A group is a world of its own while a trial runs, so that the same cell trains on it as on all
ranks, and an error or a death in one group is none in the others. Between trials all ranks are in
the one world again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator
from typing import Any

from IPython import get_ipython

from tnt_notebook import comm
from tnt_notebook.comm import World
from tnt_notebook.engine.fit import run_distributed
from tnt_notebook.error_text import brief

#: What a trial is judged by, in its cell.
_VALUE = "_tnt_value"

_part: World | None = None
_divided: tuple[int, list[list[int]]] | None = None


def divide(groups: list[list[int]]) -> list[int]:
    """Divides the ranks: each group gets a world of its own, and those in none get one together.
    Collective over the ranks that live. What is divided so already stays as it is.

    Args:
        groups: of ranks, by the numbers that they had in the beginning.

    Returns:
        The group of this rank; those in none are one too.
    """
    global _part, _divided
    world = comm.world()
    own = world.seats[world.rank]
    wanted = (world.generation, groups)
    # One that has failed to divide, or is new, has the others do so as well.
    if any(world.gather_numbers(int(_part is None or wanted != _divided))):
        if _part is not None:
            _part.close()
        color = next((i for i, group in enumerate(groups) if own in group), len(groups))
        _part, _divided = None, None
        _part = world.apart(color)
        _divided = wanted
    beside = next((group for group in groups if own in group), None)
    return beside or [s for s in world.seats if not any(s in group for group in groups)]


def run_trial(
    cell: str,
    settings: dict[str, Any],
    expression: str | None,
    options: dict[str, Any],
    kept: dict[str, Any] | None,
) -> dict[str, Any]:
    """Runs a cell with other settings, distributed over the group of this rank. Collective over
    that. It leaves no names in the cells of the rank, and changes none.

    Args:
        cell: ordinary Keras code.
        settings: names that it finds set.
        expression: of its names; what the trial is judged by. None: nothing beside the history.
        options, kept: as of :func:`tnt_notebook.engine.fit.run_fit_cell`.

    Returns:
        What that returns, and the ``value`` of the expression; None where the cell was stopped.
    """
    namespace = get_ipython().user_ns
    with in_part():
        namespace.update(settings)
        # As the last line of the cell: all ranks compute it, and distributed if it is so.
        judged = f"{cell.rstrip()}\n{_VALUE} = ({expression})\n"
        result, _ = run_distributed(judged, options, kept)
        if "error" in result:
            return result
        try:
            return {**result, "value": _number(namespace.get(_VALUE))}
        except (TypeError, ValueError) as error:
            text = f"the value of {expression!r} is not a number: {brief(error)}"
            return {"error": {"ename": "ModelError", "evalue": text, "traceback": ""}}


@contextlib.contextmanager
def in_part() -> Iterator[World]:
    """Inside, the group of this rank is the world, and names of cells may change: what they were,
    they are again after it. Collective over the group."""
    assert _part is not None, "the ranks were not divided"
    namespace = get_ipython().user_ns
    with comm.use(_part), _restored(namespace), _retracing_is_usual():
        _part.recover()  # from what ran before
        yield _part


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


@contextlib.contextmanager
def _restored(namespace: dict[str, Any]) -> Iterator[None]:
    """Inside, names may change. The next trial needs the memory of what they were."""
    before: dict[str, Any] = dict(namespace)
    try:
        yield
    finally:
        namespace.clear()
        namespace.update(before)
        gc.collect()


@contextlib.contextmanager
def _retracing_is_usual() -> Iterator[None]:
    """Inside, TensorFlow does not warn that much is traced: each trial has a model of its own."""

    def is_other(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger = logging.getLogger("tensorflow")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
