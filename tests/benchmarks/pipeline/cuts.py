"""The automatic cut for two ranks, and every other: how much longer than the best a step takes."""

import os
import statistics
from argparse import Namespace
from collections.abc import Iterator
from functools import partial

from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.job import Job
from tests.benchmarks.pipeline.tasks import TASKS
from tests.benchmarks.report import reported, section, three_digits
from tests.benchmarks.rounds import counted, ratio, rotating, tell
from tests.support.cases import THOROUGH

_RANKS = 2
DEFAULT = ("dense", "funnel") if THOROUGH else ("funnel",)
_AUTO = "auto"


def names_of_layers(task: str) -> list[str]:
    """Those that a second stage may begin with."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tests.benchmarks.pipeline.keras_models import built

    layers = built(TASKS[task]).layers
    first = next(i for i, layer in enumerate(layers) if layer.weights)
    return [layer.name for layer in layers[first + 1 :]]


def measure(task: str, options: Namespace) -> dict[str, list[float]]:
    """Seconds of a step, in each round, by the layer at which the model is cut."""
    with Job(_RANKS, commands(OPEN_MPI, _RANKS, "pipeline.ranks:tnt", task)) as job:

        def turn(cut: str) -> float:
            request = {"micro_batches": options.micro_batches, "cut_at": cut}
            return max(answer["seconds"] for answer in job.ask(schedule="1f1b", **request))

        turns = {cut: partial(turn, cut) for cut in (_AUTO, *names_of_layers(task))}
        for cut, begin in turns.items():
            begin()  # traces
            tell(f"  {TASKS[task].title}, cut at {cut}: traced")
        return rotating(turns, options.rounds, options.seconds)


def table(task: str, micro_batches: int, seconds: dict[str, list[float]]) -> str:
    """A row for each cut, the best one first."""
    by_time = sorted(seconds, key=lambda cut: statistics.median(seconds[cut]))
    best = next(cut for cut in by_time if cut != _AUTO)
    rows = [["cut at", "ms a step", "/ the best cut by hand"]]
    for cut in by_time:
        median = three_digits(1e3 * statistics.median(seconds[cut]))
        rows.append([cut, median, str(ratio(seconds[cut], seconds[best]))])
    what, of = f"{micro_batches} micro-batches", counted(len(seconds[best]))
    title = f"{TASKS[task].title}, {_RANKS} ranks, 1F1B, {what}; medians of {of}"
    return section(title, rows, [])


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    for task in options.tasks:
        seconds = measure(task, options)
        yield table(task, options.micro_batches, seconds), {task: seconds}


if __name__ == "__main__":
    reported(
        __doc__, 5, 45, measured,
        tasks={"nargs": "+", "choices": list(TASKS), "default": DEFAULT},
        micro_batches={"type": int, "default": 8},
    )  # fmt: skip
