"""The automatic cut for two ranks, and every other: how much longer than the best a step takes."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.cores import POLICY
from tests.benchmarks.job import Job
from tests.benchmarks.pipeline.tasks import DENSE, FUNNEL, TASKS, Task
from tests.benchmarks.report import markdown, three_digits
from tests.benchmarks.rounds import machine, ratio, rotating

_RANKS = 2
_AUTO = "auto"


def names_of_layers(task: Task) -> list[str]:
    """Those that a second stage may begin with."""
    from tests.benchmarks.pipeline.keras_models import built

    layers = built(task).layers
    first = next(i for i, layer in enumerate(layers) if layer.weights)
    return [layer.name for layer in layers[first + 1 :]]


def measure(task: Task, micro_batches: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step, in each round, by the layer at which the model is cut."""
    cuts = [_AUTO, *names_of_layers(task)]
    with tempfile.TemporaryDirectory(prefix="tnt-cuts-") as folder:
        library = native.compiled(Path(folder))
        command = commands(OPEN_MPI, _RANKS, ["tests.benchmarks.pipeline.rank_tnt", task.name])
        job = Job(_RANKS, command, library, timeout=600)
        try:

            def turn(cut: str) -> float:
                answers = job.ask(schedule="1f1b", micro_batches=micro_batches, cut_at=cut)
                return max(answer["seconds"] for answer in answers)

            turns = [partial(turn, cut) for cut in cuts]
            for begin in turns:
                begin()  # traces
            return dict(zip(cuts, rotating(turns, rounds), strict=True))
        finally:
            job.stop()


def table(task: Task, micro_batches: int, seconds: dict[str, list[float]]) -> str:
    """A row for each cut, the best one first."""
    by_time = sorted(seconds, key=lambda cut: statistics.median(seconds[cut]))
    best = next(cut for cut in by_time if cut != _AUTO)
    rows = [["cut at", "ms a step", "/ the best cut by hand"]]
    for cut in by_time:
        median = three_digits(1e3 * statistics.median(seconds[cut]))
        rows.append([cut, median, str(ratio(seconds[cut], seconds[best]))])
    return f"{task.title}, {_RANKS} ranks, 1F1B, {micro_batches} micro-batches\n\n{markdown(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[DENSE.name, FUNNEL.name])
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{machine()}; {POLICY}; one compute thread a rank", flush=True)
    for task in (TASKS[name] for name in options.tasks):
        seconds = measure(task, options.micro_batches, options.rounds)
        print(f"\n{table(task, options.micro_batches, seconds)}", flush=True)


if __name__ == "__main__":
    main()
