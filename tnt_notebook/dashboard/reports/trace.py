"""A run to look at afterwards, or while it goes: its figures, its boxes as a table, its export."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tnt_notebook import telemetry
from tnt_notebook.dashboard.figures import breakdown, step_figure
from tnt_notebook.dashboard.figures.figures import run_figure, throughput_panel
from tnt_notebook.dashboard.figures.panels import drawn
from tnt_notebook.dashboard.figures.wording import plural
from tnt_notebook.dashboard.reports import compare
from tnt_notebook.errors import TraceError
from tnt_notebook.telemetry import Frame, archive
from tnt_notebook.telemetry.chrome import chrome_trace
from tnt_notebook.telemetry.run_folder import slug
from tnt_notebook.telemetry.run_reader import read
from tnt_notebook.telemetry.step_trace import StepTrace
from tnt_notebook.telemetry.table import BoxRow, box_rows, meter_rows, write_csv

if TYPE_CHECKING:
    import pandas as pd


class Trace:
    """What a run told about itself, so far.

    Example::

        trace = fit.trace                   # or Trace.open("last"), of another day
        trace.save("run.json")              # opens in https://ui.perfetto.dev
        trace.to_pandas().groupby("what").duration_s.sum()
        trace.compare(Trace.open("20261121-193000"))

    Attributes:
        frames: what rank 0 said, a few times a second.
        title: what the run is called.
    """

    def __init__(self, frames: Sequence[Frame], title: str = "run") -> None:
        self.frames = list(frames)
        self.title = title

    @classmethod
    def open(cls, run: str | Path = "last") -> Trace:
        """A run that was kept.

        Args:
            run: its folder, or its id as ``%tnt_trace list`` shows it, a part of that, or ``last``.

        Raises:
            TraceError: there is no such run, or its files are damaged.
        """
        folder = Path(run)
        if os.sep in str(run) or isinstance(run, Path):
            info = archive.about(folder)
            if info is None:
                raise TraceError(f"{folder} is not the folder of a run.")
        else:
            info = archive.find(str(run))
        return cls(read(info.folder), info.title)

    @property
    def steps(self) -> list[StepTrace]:
        """The steps that were looked at closely, box by box, in order: those of the last fit; of a
        cell without one, of its last evaluate or predict. Each is the median one of those since
        the one before.
        """
        return telemetry.steps_seen(telemetry.main_run(self.frames))

    @property
    def median_step(self) -> StepTrace | None:
        """The one of them that stands for the run; None where no step was looked at."""
        return telemetry.median_step(telemetry.main_run(self.frames))

    @property
    def samples_per_s(self) -> float:
        """Of all ranks while they train: in all steps, the first ones of epochs included."""
        return telemetry.samples_per_s(telemetry.main_run(self.frames))

    @property
    def limit(self) -> str:
        """What limits training most, in a sentence; of a run too short to say, nothing."""
        return telemetry.limit_of(telemetry.main_run(self.frames))

    def save(self, path: str | Path) -> Path:
        """Writes the run in the trace format of Chrome, which Perfetto opens; or, where the name
        ends in ``.csv``, its boxes as a table. Returns the path.
        """
        path = Path(path)
        if path.suffix == ".csv":
            write_csv(path, self._rows())
        else:
            text = json.dumps(chrome_trace(self.frames, self.title), separators=(",", ":"))
            path.write_text(text, encoding="utf-8")
        return path

    def save_beside(self) -> Path:
        """Saves it in a new file in the current folder, ``mlp-on-digits-20261121-193000.json``, and
        returns its path.
        """
        name = f"{slug(self.title)}-{time.strftime('%Y%m%d-%H%M%S')}"
        path, number = Path.cwd() / f"{name}.json", 1
        while path.exists():
            number += 1
            path = path.with_name(f"{name}-{number}.json")
        return self.save(path)

    def to_pandas(self, of: Literal["boxes", "meters"] = "boxes") -> pd.DataFrame:
        """A row a box: step, rank, kind, what, stage, number, begin_s, end_s, duration_s. Of
        ``"meters"``, a row a second and rank: time_s, rank, and a column for each meter.

        Times are seconds since the run began; ``stage`` is that of a forward or backward, and of
        a send or a wait for a message the other rank; ``number`` is that of the micro-batch, and of
        a send or an exchange which one it is.

        Raises:
            TraceError: pandas is not installed, or there is no such table.
        """
        try:
            import pandas as pd
        except ImportError:
            raise TraceError(
                "pandas is not installed: pip install pandas. Without it, .save('boxes.csv') "
                "writes the same table."
            ) from None
        if of == "meters":
            return pd.DataFrame(list(meter_rows(self.frames, self._began)))
        if of != "boxes":
            raise TraceError(f"to_pandas has the tables 'boxes' and 'meters', and not {of!r}.")
        return pd.DataFrame(list(self._rows()), columns=list(BoxRow._fields))

    def plot_timeline(self, step: int | None = None) -> Any:
        """A step as a plotly figure: when each rank did what.

        Args:
            step: which of :attr:`steps`; default: :attr:`median_step`.

        Raises:
            TraceError: there is no such step.
        """
        steps, median = self.steps, self.median_step
        if step is None and median is not None:
            return step_figure.figure_of(median)
        step = -1 if step is None else step
        if not -len(steps) <= step < len(steps):
            there = plural(len(steps), "step")
            raise TraceError(f"{self.title} has no step {step}: {there} were looked at closely.")
        return step_figure.figure_of(steps[step])

    def plot_throughput(self) -> Any:
        """Samples per second while it trains, over time, by rank where ranks differ, as a plotly
        figure."""
        return drawn([throughput_panel(self._main())])

    def plot_breakdown(self) -> Any:
        """Where the time of the median step went on each rank, and what limits it, as a plotly
        figure.

        Raises:
            TraceError: the run was too short to say.
        """
        run = self._main()
        of_ranks = telemetry.breakdowns(run)
        if not of_ranks:
            raise TraceError(f"{self.title} has no breakdown: only fits of several steps have one.")
        return breakdown.figure_of(of_ranks, telemetry.limit_of(run))

    def plot(self) -> Any:
        """All that there is to see of it in one plotly figure."""
        return run_figure(self._main())

    def compare(self, *others: Trace) -> Any:
        """This run beside others in one plotly figure: samples per second, the parts of a step, and
        how much of it ranks are idle.
        """
        traces = [self, *others]
        return compare.figure_of(
            [trace._main() for trace in traces], [trace.title for trace in traces]
        )

    def __repr__(self) -> str:
        took = telemetry.duration(telemetry.main_run(self.frames))
        steps = plural(len(self.steps), "step")
        return f"<Trace of {self.title}: {len(self.frames):,} frames in {took:.0f} s, {steps}>"

    def _main(self) -> list[Frame]:
        run = telemetry.main_run(self.frames)
        if not run:
            raise TraceError(f"{self.title} has reported nothing yet.")
        return run

    @property
    def _began(self) -> float:
        return min((frame["start"] for frame in self.frames), default=0.0)

    def _rows(self) -> Any:
        return box_rows(self.steps, self._began)
