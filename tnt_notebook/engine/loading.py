"""``%tnt_bench input`` on a rank: what loaders, or a dataset of its cells, deliver.

Only plain data goes back to the notebook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython import get_ipython

from tnt_notebook import comm
from tnt_notebook.engine import preload
from tnt_notebook.engine.progress import teller
from tnt_notebook.error_text import brief
from tnt_notebook.errors import DataError
from tnt_notebook.protocol import Published


def measure(options: dict[str, Any]) -> dict[str, Any]:
    """Measures loaders of generated files. Collective over all ranks.

    Args:
        options: what :class:`tnt_notebook.parallel.loading.measure.Question` takes.

    Returns:
        On rank 0 what :func:`tnt_notebook.parallel.loading.measure.measure` gives; or
        ``{"refused": why}``.
    """
    # They load TensorFlow: later, so that an engine begins without it.
    preload.finish()
    from tnt_notebook.parallel.loading import measure as loading

    tell = teller(Published.LOADED)

    def take(report: dict[str, Any]) -> None:
        if comm.world().rank == 0:
            tell(report, always=True)

    question = loading.Question(**{k: _fixed(v) for k, v in options.items()})
    try:
        question.cases()
    except ValueError as error:
        return {"refused": str(error)}
    return _together(lambda: loading.measure(comm.world(), question, take))


def measure_input(
    name: str, seconds: float, in_parts: bool = True, replicas: int | None = None
) -> dict[str, Any]:
    """Measures a dataset of the cells. Collective over all ranks.

    Args:
        name: of the dataset in the cells.
        seconds, in_parts, replicas: as of
            :func:`tnt_notebook.parallel.loading.of_cell.measure_own`; by default each rank is one.

    Returns:
        On rank 0 what that gives, or ``{"refused": why}``.
    """
    preload.finish()
    from tnt_notebook.parallel.loading.of_cell import ABSENT, measure_own

    tell, over = teller(Published.LOADED), comm.world()

    def take(what: str) -> None:
        if over.rank == 0:
            tell({"what": what})

    def measured() -> dict[str, Any]:
        value = get_ipython().user_ns.get(name, ABSENT)
        return measure_own(over, name, value, seconds, in_parts, replicas or over.size, take)

    try:
        return _together(measured)
    except DataError as error:  # which all ranks raise
        return {"refused": str(error)}


def _together(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    over = comm.world()
    try:
        result = measured()
    except DataError:
        raise
    except BaseException as error:  # Ctrl-C too: the others must not wait for this rank
        if not getattr(error, "peers_know", False):
            comm.abort(f"rank {over.rank}: {brief(error)}")
        raise
    return result if over.rank == 0 else {}


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
