"""``%tnt_bench training``: strong and weak scaling of a cell, shown while it grows, and what came
of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.display import DisplayHandle, display

from tnt_notebook.cluster.handles import scaling
from tnt_notebook.dashboard.figures.wording import plural
from tnt_notebook.dashboard.reports.bench import placeholder
from tnt_notebook.dashboard.reports.scaling import Scaling, figure_bundle
from tnt_notebook.dashboard.reports.scaling_table import columns_of
from tnt_notebook.errors import ClusterError, RankError, TntError
from tnt_notebook.magics.progress import StatusLine, in_notebook, noninteractive
from tnt_notebook.magics.table import Bold, Table, bundle
from tnt_notebook.telemetry.scaling import Measured

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster


def run(cluster: Cluster, cell: str, found: Measured, command: str) -> None:
    """Measures and shows.

    Args:
        cell: ordinary Keras code.
        found: with the question; gets what is measured, also where something fails later.
        command: what was typed.

    Raises:
        StudyError: the cluster or the cell cannot do what is asked for.
        RankError, DeathError: a rank raised, or died.
        ClusterError: it was interrupted.
    """
    view = _View(found, command)
    try:
        scaling.measure(cluster, cell, found, view.status.update, view.grow)
    except (TntError, KeyboardInterrupt) as error:
        done = plural(len(found.runs), "fit")
        by_ranks = isinstance(error, RankError) and error.interrupted
        if isinstance(error, KeyboardInterrupt) or by_ranks:
            view.end(f"interrupted after {done}")
            raise ClusterError("Interrupted. The ranks are free again.") from None
        view.end(f"failed after {done}")
        raise
    took = plural(max(1, round(found.took_s)), "second")
    view.end(f"{plural(len(found.runs), 'fit')} measured in {took}")


def save(bench: Scaling, path: Path, force: bool) -> str:
    """Writes the report; returns what to say."""
    return f"The report is {bench.report(path, force)}"


def dated(folder: Path) -> Path:
    """A name for a report that no file has."""
    name = f"scaling-{time.strftime('%Y%m%d-%H%M%S')}"
    path, count = folder / f"{name}.html", 1
    while path.exists():
        count += 1
        path = folder / f"{name}-{count}.html"
    return path


class _View:
    """A status line, then a table that grows in a notebook, then the figure."""

    def __init__(self, found: Measured, command: str) -> None:
        self.status = StatusLine()
        self._found, self._command = found, command
        self._table: DisplayHandle | None = None
        self._figure: DisplayHandle | None = None

    def grow(self) -> None:
        """There is another fit."""
        if in_notebook() and not noninteractive():
            self._show(Scaling(self._found, self._command))

    def end(self, line: str) -> None:
        """Leaves a last line, and what was measured."""
        self.status.end(line)
        if not self._found.runs:
            return
        bench = Scaling(self._found, self._command)
        if not in_notebook():
            print(scaling_bundle(bench)["text/plain"])
            return
        self._show(bench)
        assert self._figure is not None
        self._figure.update(figure_bundle(bench), raw=True)

    def _show(self, bench: Scaling) -> None:
        bundle = scaling_bundle(bench)
        if self._table is not None:
            self._table.update(bundle, raw=True)
            return
        self._table = display(bundle, raw=True, display_id=True)
        # JupyterLab draws a figure once: what is to come is nothing to see until it is complete.
        self._figure = display(placeholder(), raw=True, display_id=True)


def scaling_bundle(bench: Scaling) -> dict[str, str]:
    """Headline, table, what limits training, and verdict."""
    parts: list[str | Table] = [f"{bench.headline} (in brackets from the lowest to the highest)"]
    head, rows = columns_of(bench.rows, bench.found.question)
    parts.append(Table(head, rows, left={"scaling"}))
    if limits := bench.limits():
        heads = ("on", "what limits training")
        parts.append(Table(heads, limits, left={*heads}))
    return bundle(*parts, Bold(bench.verdict))
