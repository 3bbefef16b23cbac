"""What ``%tnt_bench training`` found, for people to read and for code to go on with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.card.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.figures.scaling_figure import figure_of
from tnt_notebook.dashboard.figures.wording import plural, rate
from tnt_notebook.dashboard.reports.scaling_report import Report, write
from tnt_notebook.plan.prediction import InputPlan, PipelinePlan, from_json, with_input
from tnt_notebook.telemetry.limit import WAITS_FOR_INPUT
from tnt_notebook.telemetry.scaling import Measured, Mode, Run, as_json, of_turn, rows_of

#: A step may differ by so much from what was expected before it is worth a word.
WORTH_A_WORD = 0.2


class Scaling:
    """Strong and weak scaling of a cell on the ranks of a cluster.

    Example::

        [row["efficiency"] for row in bench.rows if row["mode"] == "strong"]
        bench.figure.write_image("scaling.pdf")
        bench.report("scaling.html")

    Attributes:
        rows: a dict for each number of ranks and mode, see
            :func:`tnt_notebook.telemetry.scaling.rows_of`; and what was expected:
            ``expected_samples_per_s``, ``expected_efficiency``: as many times what was measured on
            the fewest ranks as the plans of both say. What is not known is None.
        plans: by ranks and mode, on the fewest ranks of the first mode, what ``%tnt_plan`` says of
            the cell: plans, as ``plan.step_s``; none where the model cannot be planned.
        runs: a dict for each fit, see :class:`tnt_notebook.telemetry.scaling.Run`.
        machine: of each rank what it ran on, a dict.
        command: what was typed, to be typed again.
        complete: False where it was interrupted, or failed.
    """

    def __init__(self, found: Measured, command: str) -> None:
        self.found, self.command, self.complete = found, command, found.complete
        self.plans = {turn: from_json(plan) for turn, plan in found.plans.items()}
        rows = rows_of(found.runs, found.question)
        self.rows = [{**row, **self._expected(row, rows)} for row in rows]
        self.runs: list[dict[str, Any]] = [as_json(run) for run in found.runs]
        self.machine: list[dict[str, Any]] = found.machine

    @property
    def figure(self) -> go.Figure:
        """Throughput and efficiency by ranks, measured and expected, and where a step goes."""
        return figure_of(self.rows, self._parts())

    @property
    def headline(self) -> str:
        """What was measured, in a line."""
        asked = self.found.question
        ranks = ", ".join(map(str, asked.ranks))
        modes = " and ".join(asked.modes)
        steps = "" if asked.steps is None else f" of {plural(asked.steps, 'step')}"
        return (
            f"{modes} scaling on {ranks} ranks: medians of {plural(asked.rounds, 'fit')}{steps} "
            "each, in interleaved rounds"
        )

    @property
    def verdict(self) -> str:
        """What came of it on the most ranks, and what was expected, in a few sentences."""
        said = [
            sentence
            for mode in self.found.question.modes
            if (sentence := self._of_mode(mode)) is not None
        ]
        if said:
            return " ".join([*said, *self._about_energy()])
        least = plural(self.found.question.least, "rank")
        return f"Only {least} was measured." if self.rows else "Nothing was measured."

    @property
    def notes(self) -> list[str]:
        """What there is to know about the numbers, a sentence each."""
        found, said = self.found, self._about_energy()
        most = found.question.ranks[-1]
        if (sharing := _ranks_of_a_core(found.machine)) > 1:
            said.append(f"On {most} ranks {sharing:g} of them share a core.")
        if found.unplanned:
            what = "Not all" if found.plans else "Nothing"
            said.append(f"{what} was planned: {found.unplanned}")
        elif plan := self._plan(found.question.least, found.question.modes[0]):
            took = self._fewest(found.question.modes[0]).step_s / plan.step_s
            fewest = plural(found.question.least, "rank")
            said.append(
                f"On {fewest} a step took {took:.2f} times what its plan says. What was planned "
                "of more ranks is taken as many times."
            )
        if "weak" in found.question.modes:
            said.append(
                "Weak scaling makes batch_size larger, and not the learning rate or the data: "
                "an epoch has fewer steps."
            )
        return said

    def limits(self) -> list[tuple[str, str]]:
        """What limits training, by ranks and mode, each in a sentence; only where it is known."""
        return [
            (f"{plural(row['ranks'], 'rank')}, {row['mode']}", row["limit"])
            for row in self.rows
            if row["limit"] and not self._is_again(row)
        ]

    def report(self, path: str | Path, force: bool = False) -> Path:
        """Writes all of it into one HTML file, which opens without a network.

        Args:
            path: of the file.
            force: whether one that is there may be replaced.

        Returns:
            The path.

        Raises:
            FileExistsError: it is there.
        """
        contents = Report(
            self.found, self.rows, self.figure, self.verdict, self.limits(), self.notes,
            self.command, self.complete,
        )  # fmt: skip
        return write(contents, Path(path), force)

    def __repr__(self) -> str:
        state = "" if self.complete else ", not complete"
        return f"<{self.headline}; {plural(len(self.runs), 'fit')}{state}>"

    def _about_energy(self) -> list[str]:
        asked, machine = self.found.question, self.found.machine
        uncounted = [f"{one['host']}: {one['energy']}" for one in machine if one["energy"]]
        if uncounted:
            why = "; ".join(dict.fromkeys(uncounted))
            if asked.watts:
                return [f"Energy is an estimate, by {asked.watts:g} W a rank: {why}."]
            return [f"Energy is not measured: {why}. --watts W estimates it."]
        if not machine:
            return []
        return ["Energy of processors is that of whole hosts, with ranks that idle and other "
                "programs."]  # fmt: skip

    def _is_again(self, row: dict[str, Any]) -> bool:
        """Whether it is of the same runs as another one: on the fewest ranks both modes are."""
        asked = self.found.question
        return row["ranks"] == asked.least and row["mode"] != asked.modes[0]

    def _of_mode(self, mode: Mode) -> str | None:
        rows = [row for row in self.rows if row["mode"] == mode]
        if len(rows) < 2:
            return None
        first, last = rows[0], rows[-1]
        batch = "the same batch" if mode == "strong" else f"a batch of {last['batch']:,}"
        sentence = (
            f"{mode.capitalize()}: {last['ranks']} ranks train {rate(last['samples_per_s'])} "
            f"samples/s with {batch}, {last['speedup']:.2f} times {plural(first['ranks'], 'rank')},"
            f" an efficiency of {last['efficiency']:.0%}"
        )
        expected = last["expected_efficiency"]
        if expected is None:
            return f"{sentence}."
        more = last["efficiency"] / expected - 1
        as_expected = abs(more) <= WORTH_A_WORD
        return f"{sentence}; {'as planned' if as_expected else 'planned'}: {expected:.0%}."

    def _expected(
        self, row: dict[str, Any], rows: Sequence[dict[str, Any]]
    ) -> dict[str, float | None]:
        """What was to be expected of a row: what was measured on the fewest ranks, as many times as
        the plans of both say."""
        ranks, mode, least = row["ranks"], row["mode"], self.found.question.least
        few, more = self._plan(least, mode), self._plan(ranks, mode)
        if few is None or more is None:
            return {"expected_samples_per_s": None, "expected_efficiency": None}
        base = next(one for one in rows if (one["ranks"], one["mode"]) == (least, mode))
        times = more.samples_per_s / few.samples_per_s
        return {
            "expected_samples_per_s": times * base["samples_per_s"],
            "expected_efficiency": times * least / ranks,
        }

    def _plan(self, ranks: int, mode: Mode) -> PipelinePlan | None:
        """With input where the fewest ranks wait for it, and all of it is made by each: then it
        comes no sooner on more. Other input is made by more, too."""
        asked = self.found.question
        of_fewest = self.plans.get((asked.least, asked.modes[0]))
        plan = of_fewest if ranks == asked.least else self.plans.get((ranks, mode))
        if plan is None or of_fewest is None:
            return None
        run = self._fewest(mode)
        waits = run.parts.get("input", 0.0) / (sum(run.parts.values()) or 1.0)
        if not run.shared_input or waits < WAITS_FOR_INPUT:
            return plan
        delivered = (1 - waits) * of_fewest.samples_per_s
        return with_input(plan, InputPlan("", "every rank reads all", delivered))

    def _fewest(self, mode: Mode) -> Run:
        """A typical run on the fewest ranks."""
        asked = self.found.question
        return _typical(of_turn(self.found.runs, asked.least, mode, asked))

    def _parts(self) -> list[tuple[str, dict[str, float]]]:
        """Of each number of ranks and mode, the parts of the step of a typical run."""
        asked, found = self.found.question, []
        for row in self.rows:
            run = _typical(of_turn(self.found.runs, row["ranks"], row["mode"], asked))
            if run.parts and not self._is_again(row):
                alone = row["ranks"] == asked.least or len(asked.modes) == 1
                mode = "" if alone else f", {row['mode']}"
                found.append((plural(row["ranks"], "rank") + mode, run.parts))
        return found


def figure_bundle(scaling: Scaling) -> Bundle:
    """The figure as it stays in a notebook."""
    return {
        PLOTLY: scaling.figure.to_plotly_json(),
        "text/plain": "Figure: throughput and efficiency by number of ranks.",
    }


def _typical(runs: list[Run]) -> Run:
    return sorted(runs, key=lambda run: run.samples_per_s)[len(runs) // 2]


def _ranks_of_a_core(machine: Sequence[dict[str, Any]]) -> float:
    """How many ranks share a core on the host where most do, if they compute on cores; at least
    1."""
    most = 1.0
    for host in {one["host"] for one in machine if not one["gpus"]}:
        own = [set(one["cores"]) for one in machine if one["host"] == host]
        most = max(most, sum(map(len, own)) / len(set().union(*own)))
    return most
