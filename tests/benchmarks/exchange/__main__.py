"""Training steps with each exchange, beside ranks that exchange nothing, and torch's DDP.

    python -m tests.benchmarks.exchange --json exchange.json

As `training`: every rank computes on one core with one thread, and has the same number of samples
in each step. `alone` trains on each rank by itself: the most that any exchange can reach.
"""

import statistics
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TORCH, commands
from tests.benchmarks.cores import cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import line, reported, section, three_digits
from tests.benchmarks.rounds import counted, ratio, tell
from tests.benchmarks.training.ranks import TASKS

#: Which exchanges take part in which task; the first is what the others are compared with, too.
FIELD = {
    "mlp": (
        "allreduce", "allreduce:wire=bfloat16", "sharded", "late", "qsgd", "onebit", "topk",
        "powersgd", "local", "elastic", "gossip", "server",
    ),
    "mlp_adam": ("allreduce", "sharded", "late"),
    "mlp_eight_steps": ("allreduce", "late"),
}  # fmt: skip
OTHERS = {"ddp": TORCH, "alone": PROCESSES}


def measure(task: str, options: Namespace) -> dict:
    """Seconds of each contestant's rounds, and what is to be said beside them."""
    ranks = options.ranks

    def start(name: str) -> Job:
        if name in OTHERS:
            return Job(ranks, commands(OTHERS[name], ranks, f"training.ranks:{name}", task))
        return Job(ranks, commands(OPEN_MPI, ranks, "training.ranks:tnt", task, name))

    def slowest(answers: list[tuple[float, float]]) -> float:
        return max(seconds for seconds, _ in answers)

    names = (*FIELD[task], *OTHERS)
    turns = {name: (name, {}) for name in names}
    with Lineup(names, start) as lineup:
        lineup.rounds(turns, slowest, 1, 0)  # traces
        before = cache_line_ns()
        results = lineup.rounds(turns, slowest, options.rounds, options.seconds)
        tell(f"  {TASKS[task].title}: done")
        return {
            "task": task,
            "ranks": ranks,
            "line_ns": (before, cache_line_ns()),
            "seconds": results,
            "notes": lineup.notes,
        }


def table(figures: dict) -> str:
    """Steps a second, and ratios of them, of rounds that were run in turn."""
    seconds, task = figures["seconds"], TASKS[figures["task"]]
    rows = [["", "ms a step, mean of an epoch (fastest)", "it / alone, steps/s",
             "it / allreduce, steps/s"]]  # fmt: skip
    for name, turns in seconds.items():
        median, fastest = (1e3 * f(turns) / task.steps for f in (statistics.median, min))
        beside = [
            ratio(seconds[other], turns) if other in seconds and other != name else ""
            for other in ("alone", "allreduce")
        ]
        rows.append([name, f"{three_digits(median)} ({three_digits(fastest)})", *map(str, beside)])
    of = counted(max(map(len, seconds.values()), default=0))
    title = (
        f"{task.title}, {figures['ranks']} ranks, medians of {of}; "
        f"cache line {line(figures['line_ns'])} ns"
    )
    return section(title, rows, figures["notes"])


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    for task in FIELD:
        figures = measure(task, options)
        yield table(figures), figures


if __name__ == "__main__":
    reported(__doc__, 21, 60, measured, ranks={"type": int, "default": 2})
