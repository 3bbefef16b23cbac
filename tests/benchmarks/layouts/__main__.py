"""Training steps of models whose layers are divided among ranks, beside one rank alone and torch;
and exchanges of halos, beside those of a plain MPI program.

    python -m tests.benchmarks.layouts --json layouts.json

Every rank computes on one core with one thread. The batch is the same on all ranks together as on
one rank alone, whose other core rests: this is strong scaling. Efficiency is its step over (ranks x
step). ``torch`` is the same stack of convolutions with halos over gloo, in the way of MPI4DL (Jain
et al., "Hy-Fi: Hybrid Five-Dimensional Parallel DNN Training", ISC 2022).

Halos are exchanged by the op of this project and by two calls of mpi4py's Sendrecv: rows alone, or
with the block put between them, as a convolution takes it.
"""

import os
import statistics
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TORCH, commands
from tests.benchmarks.cores import cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.layouts.ranks import HALOS_IN_A_ROW
from tests.benchmarks.layouts.tasks import HALOS, TASKS
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import line, reported, section, three_digits
from tests.benchmarks.rounds import counted, ratio, tell
from tests.support.cases import THOROUGH

#: Where each contestant runs, on how many ranks (none: all), and what they run.
FIELD = {
    "mesh": (OPEN_MPI, None, "mesh"),
    "alone": (PROCESSES, 1, "alone"),
    "torch": (TORCH, None, "torch"),
    "torch alone": (TORCH, 1, "torch"),
}
#: torch has one of the models.
WITH_TORCH = "stack"
#: Each of ours, and the plain program that it is compared with.
WAYS = {"move block": "sendrecv block", "move": "sendrecv"}
#: Of a way, in a round.
RUNS = 25


def train(task: str, options: Namespace) -> dict:
    """Seconds of a step of each contestant, of rounds in turn."""
    names = [n for n in FIELD if task == WITH_TORCH or not n.startswith("torch")]

    def start(name: str) -> Job:
        runtime, ranks, function = FIELD[name]
        ranks = ranks or options.ranks
        return Job(ranks, commands(runtime, ranks, f"layouts.ranks:{function}", task))

    turns = {name: (name, {}) for name in names}
    with Lineup(names, start) as lineup:
        lineup.rounds(turns, max, 1, 0)  # traces
        before = cache_line_ns()
        results = lineup.rounds(turns, max, options.rounds, options.seconds)
        tell(f"  {TASKS[task].title}: done")
        return {
            "task": task,
            "ranks": options.ranks,
            "line_ns": (before, cache_line_ns()),
            "load": os.getloadavg()[0],
            "seconds": results,
            "notes": lineup.notes,
        }


def training_table(figures: dict) -> str:
    """A row for each contestant."""
    seconds, ranks = figures["seconds"], figures["ranks"]
    rows = [["", "ms a step (fastest)", "efficiency", "it / mesh, time"]]
    for name, turns in seconds.items():
        median, fastest = (three_digits(1e3 * f(turns)) for f in (statistics.median, min))
        reference = "torch alone" if name.startswith("torch") else "alone"
        efficiency = beside = ""
        if reference in seconds and name != reference:
            shared = [s / ranks for s in seconds[reference]]
            efficiency = str(ratio(shared, turns))
        if "mesh" in seconds and name != "mesh":
            beside = str(ratio(turns, seconds["mesh"]))
        rows.append([name, f"{median} ({fastest})", efficiency, beside])
    return section(_title(TASKS[figures["task"]].title, figures, seconds), rows, figures["notes"])


def exchange(halo: str, options: Namespace) -> dict:
    """Seconds of an exchange in each way, the fastest of a round's runs."""

    def start(name: str) -> Job:
        return Job(options.ranks, commands(OPEN_MPI, options.ranks, "layouts.ranks:halo", name))

    def each(answers: list[list[float]]) -> float:
        slowest = [max(runs) for runs in zip(*answers, strict=True)]
        return statistics.median(slowest) / HALOS_IN_A_ROW

    ways = [way for pair in WAYS.items() for way in pair if options.ranks == 2 or "block" in way]
    turns = {way: (way, {"name": halo, "iterations": RUNS}) for way in ways}
    with Lineup(ways, start) as lineup:
        lineup.rounds(turns, each, 1, 0)
        before = cache_line_ns()
        results = lineup.rounds(turns, each, options.rounds, options.seconds)
        return {
            "halo": halo,
            "ranks": options.ranks,
            "line_ns": (before, cache_line_ns()),
            "load": os.getloadavg()[0],
            "seconds": results,
            "notes": lineup.notes,
        }


def halo_table(figures: dict) -> str:
    seconds = figures["seconds"]
    rows = [["", "us an exchange (fastest)", "it / sendrecv, time"]]
    for name, turns in seconds.items():
        median, fastest = (three_digits(1e6 * f(turns)) for f in (statistics.median, min))
        plain = seconds.get(WAYS.get(name, ""))
        rows.append([name, f"{median} ({fastest})", str(ratio(turns, plain)) if plain else ""])
    title = f"Halos of {HALOS[figures['halo']].title}"
    return section(_title(title, figures, seconds), rows, figures["notes"])


def _title(title: str, figures: dict, seconds: dict) -> str:
    of = counted(max(map(len, seconds.values()), default=0))
    return (
        f"{title}, {figures['ranks']} ranks, medians of {of}; load {figures['load']:.1f}; "
        f"cache line {line(figures['line_ns'])} ns"
    )


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    for task in options.tasks:
        figures = train(task, options)
        yield training_table(figures), figures
    for halo in options.halos:
        figures = exchange(halo, options)
        yield halo_table(figures), figures


if __name__ == "__main__":
    reported(
        __doc__, 11, 60, measured,
        tasks={
            "nargs": "*",
            "choices": list(TASKS),
            "default": list(TASKS) if THOROUGH else ["unet32", "vgg", "dense", "stack"],
        },
        halos={"nargs": "*", "choices": list(HALOS), "default": list(HALOS)},
        ranks={"type": int, "default": 2},
    )  # fmt: skip
