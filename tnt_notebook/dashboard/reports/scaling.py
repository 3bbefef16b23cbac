"""What ``%tnt_bench training`` found, for people to read and for code to go on with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.card.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.figures.scaling_figure import figure_of
from tnt_notebook.dashboard.figures.wording import plural, rate
from tnt_notebook.dashboard.reports.scaling_report import Report, write
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.plan.mesh import DATA
from tnt_notebook.plan.network import Link
from tnt_notebook.plan.scaling import expected_step_s, ranks_of_a_core
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
            ``expected_samples_per_s``, ``expected_efficiency``. What is not known is None.
        runs: a dict for each fit, see :class:`tnt_notebook.telemetry.scaling.Run`.
        machine: of each rank what it ran on, a dict.
        networks: by number of ranks, how long an exchange took: ``latency_s``, ``bytes_per_s``.
        command: what was typed, to be typed again.
        complete: False where it was interrupted, or failed.
    """

    def __init__(self, found: Measured, command: str) -> None:
        self.found, self.command, self.complete = found, command, found.complete
        self.rows = [
            {**row, **_expected(found, row)} for row in rows_of(found.runs, found.question)
        ]
        self.runs: list[dict[str, Any]] = [as_json(run) for run in found.runs]
        self.machine: list[dict[str, Any]] = found.machine
        self.networks: dict[int, dict[str, Any]] = found.networks

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
        if (oversubscription := _oversubscription(found, most)) > 1:
            said.append(f"On {most} ranks {oversubscription:g} of them share a core.")
        if found.unplanned:
            said.append(
                "There is no plan of the model, so work is expected to fall as the samples of a "
                f"rank do: {found.unplanned}"
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


def _expected(found: Measured, row: dict[str, Any]) -> dict[str, float | None]:
    """What was to be expected of a row, from the fewest ranks and the plan."""
    ranks, mode, least = row["ranks"], row["mode"], found.question.least
    base = _typical(of_turn(found.runs, least, mode, found.question))
    batches = ranks / least if mode == "weak" else 1.0
    if ranks == least:
        rate = row["samples_per_s"]
    else:
        samples = batches * least / ranks  # of a rank
        then, now = found.steps.get((least, mode)), found.steps.get((ranks, mode))
        mesh = FitOptions.of(found.question.options).mesh_of(ranks)
        stages = 1 if mesh is None else mesh.size // mesh.along(DATA)  # ranks that share a replica
        network = found.networks.get(ranks) if ranks > stages else None
        step = expected_step_s(
            base.step_s, base.parts,
            # Faster than the samples it falls by noise alone.
            work=max(now / then, samples) if then and now else samples,
            input=batches if base.shared_input else samples,
            bytes=found.trained_bytes // stages,
            network=_link(network),
            oversubscription=_oversubscription(found, ranks) / _oversubscription(found, least),
        )  # fmt: skip
        # What the base waited for the last rank is not in a step on more: no plan is above ideal.
        rate = min(base.batch * batches / step, base.samples_per_s * ranks / least)
    base_rate = base.samples_per_s if ranks != least else rate
    return {
        "expected_samples_per_s": rate,
        "expected_efficiency": rate / base_rate * least / ranks,
    }


def _link(network: dict[str, Any] | None) -> Link | None:
    """An exchange as it was measured, where it was; of a rate that cannot be seen, any."""
    if network is None:
        return None
    return Link(network["latency_s"], network["bytes_per_s"] or math.inf)


def _oversubscription(found: Measured, ranks: int) -> float:
    """How many ranks share a core, where they compute on cores."""
    own = found.machine[:ranks]
    if any(one["gpus"] for one in own):
        return 1.0
    return ranks_of_a_core([one["host"] for one in own], [one["cores"] for one in own])
