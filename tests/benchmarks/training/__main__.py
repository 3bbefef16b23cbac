"""Training steps a second of each contestant: a table for each task on standard output."""

from __future__ import annotations

import statistics
from functools import partial

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TF_KERAS, TORCH, Runtime, commands
from tests.benchmarks.cores import POLICY, cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import keep, line, parser, section, three_digits
from tests.benchmarks.rounds import counted, machine, ratio, rotating, tell
from tests.benchmarks.training.tasks import MLP, RESNET50, TASKS, Task
from tests.support.cases import THOROUGH

OURS, ALONE = "tnt", "alone"
_HERE = "tests.benchmarks.training."

#: Where each contestant runs, and what its ranks run.
CONTESTANTS = {
    OURS: (OPEN_MPI, _HERE + "rank_tnt"),
    "mwms": (TF_KERAS, _HERE + "rank_mwms"),
    "ddp": (TORCH, _HERE + "rank_ddp"),
    ALONE: (PROCESSES, _HERE + "rank_alone"),
}
#: ResNet-50 is traced for a minute: a first look does without.
DEFAULT = list(TASKS) if THOROUGH else [MLP.name]
#: ResNet-50 is a matter of the exchange only: it is not written for the others.
FIELD = {MLP: tuple(CONTESTANTS), RESNET50: (OURS, ALONE)}


def measure(task: Task, ranks: int, rounds: int, limit: float) -> dict:
    """Seconds of each contestant's rounds, and what is to be said beside them."""
    with native.library() as library:

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
            results = rotating(turns, rounds, limit)
            tell(f"  {task.title}: done")
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
    of = counted(max(map(len, seconds.values()), default=0))
    title = (
        f"{task.title}, {figures['ranks']} ranks, medians of {of}; "
        f"cache line {line(figures['line_ns'])} ns"
    )
    return section(title, rows, figures["notes"], overlap(task, figures))


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
    asked = parser(__doc__, rounds=11, seconds=45)
    asked.add_argument("--tasks", nargs="+", choices=TASKS, default=DEFAULT)
    asked.add_argument("--ranks", type=int, default=2)
    options = asked.parse_args()
    print(f"{machine()}; {POLICY}; one compute thread a rank", flush=True)
    results = []
    for task in (TASKS[name] for name in options.tasks):
        results.append(measure(task, options.ranks, options.rounds, options.seconds))
        print(f"\n{table(task, results[-1])}", flush=True)
    keep(options.json, training=results)


if __name__ == "__main__":
    main()
