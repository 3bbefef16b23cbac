"""Training steps: this project, MultiWorkerMirroredStrategy, torch DDP, and ranks on their own.

    python -m tests.benchmarks.training --json training.json

Every rank computes on one core with one thread, and has the same number of samples in each step.
`alone` trains on each rank without exchanging anything: the most that distributed training can
reach.
"""

import statistics
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TF_KERAS, TORCH, commands
from tests.benchmarks.cores import cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import line, reported, section, three_digits
from tests.benchmarks.rounds import counted, ratio, tell
from tests.benchmarks.training.ranks import TASKS
from tests.support.cases import THOROUGH

#: Where each contestant runs, by the name of what its ranks run.
RUNTIMES = {"tnt": OPEN_MPI, "mwms": TF_KERAS, "ddp": TORCH, "alone": PROCESSES}
OURS, *_, ALONE = RUNTIMES
#: ResNet-50 is a matter of the exchange only: it is not written for the others.
FIELD = {"mlp": tuple(RUNTIMES), "resnet50": (OURS, ALONE)}
#: ResNet-50 is traced for a minute: a first look does without.
DEFAULT = list(FIELD) if THOROUGH else ["mlp"]


def measure(task: str, options: Namespace) -> dict:
    """Seconds of each contestant's rounds, and what is to be said beside them."""
    ranks = options.ranks

    def start(name: str) -> Job:
        function = f"training.ranks:{name}"
        return Job(ranks, commands(RUNTIMES[name], ranks, function, task))

    def slowest(answers: list[tuple[float, float]]) -> tuple[float, ...]:
        return tuple(map(max, zip(*answers, strict=True)))

    turns = {name: (name, {}) for name in FIELD[task]}
    with Lineup(FIELD[task], start) as lineup:
        lineup.rounds(turns, slowest, 1, 0)  # traces
        before = cache_line_ns()
        results = lineup.rounds(turns, slowest, options.rounds, options.seconds)
        tell(f"  {TASKS[task].title}: done")
        return {
            "task": task,
            "ranks": ranks,
            "line_ns": (before, cache_line_ns()),
            "seconds": {name: [turn[0] for turn in made] for name, made in results.items()},
            "communication": [turn[1] for turn in results.get(OURS, [])],
            "notes": lineup.notes,
        }


def table(figures: dict) -> str:
    """Steps a second, and ratios of them, of rounds that were run in turn."""
    task, seconds = TASKS[figures["task"]], figures["seconds"]
    # Of whole epochs, their first steps included: others have no median step.
    rows = [["", "steps/s", "ms a step, mean of an epoch (fastest)", "tnt / it, steps/s",
             "it / alone, steps/s"]]  # fmt: skip
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
    return section(title, rows, figures["notes"], overlap(figures))


def overlap(figures: dict) -> str:
    """How much of the communication the steps wait for: their time beyond that of steps without."""
    task, seconds = TASKS[figures["task"]], figures["seconds"]
    if OURS not in seconds or ALONE not in seconds:
        return "Exposed communication: not measured."
    rounds = zip(seconds[OURS], seconds[ALONE], strict=True)
    exposed = statistics.median(ours - alone for ours, alone in rounds)
    busy = statistics.median(figures["communication"])
    return (
        f"In a step of tnt a collective is under way for {1e3 * busy / task.steps:.2f} ms; exposed "
        f"(step minus step alone, median of rounds) are {1e3 * exposed / task.steps:.2f} ms."
    )


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    for task in options.tasks:
        figures = measure(task, options)
        yield table(figures), figures


if __name__ == "__main__":
    reported(
        __doc__, 11, 45, measured,
        tasks={"nargs": "+", "choices": list(FIELD), "default": DEFAULT},
        ranks={"type": int, "default": 2},
    )  # fmt: skip
