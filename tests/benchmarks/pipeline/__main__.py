"""Training steps of pipelines: this project's schedules, torch's 1F1B over gloo, one rank alone.

    python -m tests.benchmarks.pipeline --json pipeline.json

Every rank computes on one core with one thread. The micro-batches of a task always have the same
number of samples, so that the batch grows with their number; ``alone`` is one process that trains
on the whole batch at once, while the other core rests. Efficiency is its step over (ranks x step),
torch's by torch's own step alone.
"""

import statistics
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TORCH, commands
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.pipeline.tasks import WITH_TORCH
from tests.benchmarks.report import reported, section, three_digits
from tests.benchmarks.rounds import counted, quartiles, ratio, tell
from tests.support.cases import THOROUGH
from tnt_notebook.plan import families
from tnt_notebook.plan.simulate import even_costs, simulate

#: Where each contestant runs, and what its ranks run. Who is alone has one rank only.
CONTESTANTS = {
    "tnt": (OPEN_MPI, "tnt"),
    "alone": (PROCESSES, "alone"),
    "torch": (TORCH, "torch"),
    "torch alone": (TORCH, "torch"),
}


def measure(task: str, micro: int, options: Namespace) -> dict:
    """Figures of each contestant's rounds."""

    def start(name: str) -> Job:
        runtime, function = CONTESTANTS[name]
        ranks = 1 if name.endswith("alone") else options.ranks
        return Job(ranks, commands(runtime, ranks, f"pipeline.ranks:{function}", task))

    # torch's stages are cut for two.
    field = [name for name in CONTESTANTS if options.ranks == 2 or not name.startswith("torch")]
    request = {"micro_batches": micro}
    turns = {s: ("tnt", {**request, "schedule": s}) for s in options.schedules}
    turns |= {name: (name, request) for name in field if name != "tnt"}
    with Lineup(field, start) as lineup:
        lineup.rounds(turns, merged, 1, 0)  # traces
        tell(f"  {WITH_TORCH[task].title}, {micro} micro-batches: begins")
        return {
            "task": task,
            "ranks": options.ranks,
            "micro_batches": micro,
            "rounds": lineup.rounds(turns, merged, options.rounds, options.seconds),
            "notes": lineup.notes,
        }


def merged(answers: list[dict]) -> dict:
    """A step on all ranks: its seconds, and the part of it that ranks did not work."""
    seconds = max(answer["seconds"] for answer in answers)
    if "busy" not in answers[0]:
        return {"seconds": seconds}
    whole = max(a["end"] for a in answers) - min(a["begin"] for a in answers)
    return {
        "seconds": seconds,
        "bubble": 1 - sum(a["busy"] for a in answers) / (len(answers) * whole),
    }


def table(figures: dict) -> str:
    """A row for each schedule, and for torch's."""
    ranks, micro, rounds = figures["ranks"], figures["micro_batches"], figures["rounds"]
    seconds = {name: [turn["seconds"] for turn in turns] for name, turns in rounds.items()}
    rows = [["", "ms a step", "bubble, measured", "by formula", "step / ideal", "efficiency"]]
    for name, turns in rounds.items():
        reference = "torch alone" if name.startswith("torch") else "alone"
        row = [name, three_digits(1e3 * statistics.median(seconds[name]))]
        if name.endswith("alone"):
            rows.append([*row, "", "", "", ""])
            continue
        schedule = "1f1b" if name == "torch" else name
        formula = formula_of(schedule, ranks, micro)
        measured = ""
        if "bubble" in turns[0]:
            low, median, high = quartiles([100 * turn["bubble"] for turn in turns])
            measured = f"{median:.1f} % ({low:.1f} to {high:.1f})"
        ideal = [s / ranks / (1 - formula) for s in seconds[reference]]
        shared = [s / ranks for s in seconds[reference]]
        row += [measured, f"{100 * formula:.1f} %", str(ratio(seconds[name], ideal))]
        rows.append([*row, str(ratio(shared, seconds[name]))])
    of = counted(max(map(len, rounds.values()), default=0))
    title = WITH_TORCH[figures["task"]].title
    title += f", {ranks} ranks, {micro} micro-batches; medians of {of}"
    return section(title, rows, figures["notes"])


def formula_of(name: str, ranks: int, micro: int) -> float:
    """The bubble if all stages are alike, and messages cost nothing."""
    schedule = families.make(name, ranks, micro)
    return simulate(schedule, even_costs(schedule.stages)).bubble


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    for task in options.tasks:
        for micro in options.micro_batches:
            figures = measure(task, micro, options)
            yield table(figures), figures


if __name__ == "__main__":
    reported(
        __doc__, 7, 100, measured,
        tasks={
            "nargs": "+",
            "choices": list(WITH_TORCH),
            "default": list(WITH_TORCH) if THOROUGH else ["dense"],
        },
        ranks={"type": int, "default": 2},
        micro_batches={"type": int, "nargs": "+", "default": (8, 16) if THOROUGH else (8,)},
        schedules={"nargs": "+", "default": ("1f1b", "zb-h1")},
    )  # fmt: skip
