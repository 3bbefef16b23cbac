"""Training steps a second of each contestant: a table for each task on standard output."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TF_KERAS, TORCH, Runtime, commands
from tests.benchmarks.cores import POLICY, cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup, tell
from tests.benchmarks.report import line, markdown, three_digits
from tests.benchmarks.rounds import machine, ratio, rotating
from tests.benchmarks.training.tasks import MLP, RESNET50, TASKS, Task

OURS, ALONE = "tnt", "alone"
_HERE = "tests.benchmarks.training."

#: Where each contestant runs, and what its ranks run.
CONTESTANTS = {
    OURS: (OPEN_MPI, _HERE + "rank_tnt"),
    "mwms": (TF_KERAS, _HERE + "rank_mwms"),
    "ddp": (TORCH, _HERE + "rank_ddp"),
    ALONE: (PROCESSES, _HERE + "rank_alone"),
}
#: ResNet-50 is a matter of the exchange only: it is not written for the others.
FIELD = {MLP: tuple(CONTESTANTS), RESNET50: (OURS, ALONE)}


def measure(task: Task, ranks: int, rounds: int) -> dict:
    """Seconds of each contestant's rounds, and what is to be said beside them."""
    with tempfile.TemporaryDirectory(prefix="tnt-training-") as folder:
        library = native.compiled(Path(folder))

        def start(runtime: Runtime, module: str) -> Job:
            return Job(ranks, commands(runtime, ranks, [module, task.name]), library, timeout=600)

        with Lineup({n: partial(start, *CONTESTANTS[n]) for n in FIELD[task]}) as lineup:

            def turn(name: str) -> float | None:
                seconds = lineup.ask(name)
                return None if seconds is None else max(seconds)

            names = list(lineup)
            probe = native.loaded(library)
            for name in names:
                turn(name)  # traces
            before = cache_line_ns(probe)
            communication = []

            def turn_of_ours() -> float | None:
                seconds = turn(OURS)
                communication.append(max(lineup.ask(OURS, of="communication") or [0.0]))
                return seconds

            turns = [turn_of_ours if n == OURS else partial(turn, n) for n in names]
            results = rotating(turns, rounds)
            tell(f"{task.title}: done")
            return {
                "task": task.name,
                "ranks": ranks,
                "line_ns": (before, cache_line_ns(probe)),
                "seconds": {n: r for n, r in zip(names, results, strict=True) if None not in r},
                "communication": communication,
                "notes": lineup.notes(),
            }


def table(task: Task, figures: dict) -> str:
    """Steps a second, and ratios of them, of rounds that were run in turn."""
    seconds = figures["seconds"]
    rows = [["", "steps/s", "ms a step (fastest)", "tnt / it, steps/s", "it / alone, steps/s"]]
    for name, turns in seconds.items():
        median, fastest = (1e3 * f(turns) / task.steps for f in (statistics.median, min))
        over_it = ratio(turns, seconds[OURS]) if OURS in seconds and name != OURS else ""
        of_alone = ratio(seconds[ALONE], turns) if ALONE in seconds and name != ALONE else ""
        time = f"{three_digits(median)} ({three_digits(fastest)})"
        rows.append([name, three_digits(1e3 / median), time, str(over_it), str(of_alone)])
    title = f"{task.title}, {figures['ranks']} ranks; cache line {line(figures['line_ns'])} ns"
    notes = "\n".join(f"- {note}" for note in figures["notes"])
    return f"{title}\n\n{markdown(rows)}\n\n{overlap(task, figures)}\n\n{notes}"


def overlap(task: Task, figures: dict) -> str:
    """How much of the communication the steps wait for: their time beyond that of steps without."""
    seconds = figures["seconds"]
    if OURS not in seconds or ALONE not in seconds:
        return "Exposed communication: not measured."
    rounds = zip(seconds[OURS], seconds[ALONE], strict=True)
    exposed = statistics.median(ours - alone for ours, alone in rounds)
    busy = statistics.median(figures["communication"])
    return (
        f"In a step of tnt a collective is under way for {1e3 * busy / task.steps:.2f} ms; exposed "
        f"(step minus step alone, median of rounds) are {1e3 * exposed / task.steps:.2f} ms."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()
    tasks = [TASKS[name] for name in options.tasks]
    results = [measure(task, options.ranks, options.rounds) for task in tasks]
    print(f"{machine()}; {POLICY}; one compute thread a rank")
    for task, figures in zip(tasks, results, strict=True):
        print(f"\n{table(task, figures)}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "training": results}))


if __name__ == "__main__":
    main()
