"""The automatic cut for two ranks, and every other: how much longer than the best a step takes."""

from __future__ import annotations

import os
import statistics
from functools import partial

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.cores import POLICY
from tests.benchmarks.job import Job
from tests.benchmarks.pipeline.tasks import DENSE, FUNNEL, TASKS, Task
from tests.benchmarks.report import keep, parser, section, three_digits
from tests.benchmarks.rounds import counted, machine, ratio, rotating, tell
from tests.support.cases import THOROUGH

_RANKS = 2
DEFAULT = [DENSE.name, FUNNEL.name] if THOROUGH else [FUNNEL.name]
_AUTO = "auto"


def names_of_layers(task: Task) -> list[str]:
    """Those that a second stage may begin with."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tests.benchmarks.pipeline.keras_models import built

    layers = built(task).layers
    first = next(i for i, layer in enumerate(layers) if layer.weights)
    return [layer.name for layer in layers[first + 1 :]]


def measure(task: Task, micro_batches: int, rounds: int, limit: float) -> dict[str, list[float]]:
    """Seconds of a step, in each round, by the layer at which the model is cut."""
    cuts = [_AUTO, *names_of_layers(task)]
    command = commands(OPEN_MPI, _RANKS, ["tests.benchmarks.pipeline.rank_tnt", task.name])
    with native.library() as library, Job(_RANKS, command, library, timeout=600) as job:

        def turn(cut: str) -> float:
            answers = job.ask(schedule="1f1b", micro_batches=micro_batches, cut_at=cut)
            return max(answer["seconds"] for answer in answers)

        turns = [partial(turn, cut) for cut in cuts]
        for cut, begin in zip(cuts, turns, strict=True):
            begin()  # traces
            tell(f"  {task.title}, cut at {cut}: traced")
        return dict(zip(cuts, rotating(turns, rounds, limit), strict=True))


def table(task: Task, micro_batches: int, seconds: dict[str, list[float]]) -> str:
    """A row for each cut, the best one first."""
    by_time = sorted(seconds, key=lambda cut: statistics.median(seconds[cut]))
    best = next(cut for cut in by_time if cut != _AUTO)
    rows = [["cut at", "ms a step", "/ the best cut by hand"]]
    for cut in by_time:
        median = three_digits(1e3 * statistics.median(seconds[cut]))
        rows.append([cut, median, str(ratio(seconds[cut], seconds[best]))])
    of = counted(len(seconds[best]))
    title = f"{task.title}, {_RANKS} ranks, 1F1B, {micro_batches} micro-batches; medians of {of}"
    return section(title, rows, [])


def main() -> None:
    asked = parser(__doc__, rounds=5, seconds=45)
    asked.add_argument("--tasks", nargs="+", choices=TASKS, default=DEFAULT)
    asked.add_argument("--micro-batches", type=int, default=8)
    options = asked.parse_args()
    print(f"{machine()}; {POLICY}; one compute thread a rank", flush=True)
    results = {}
    for task in (TASKS[name] for name in options.tasks):
        seconds = measure(task, options.micro_batches, options.rounds, options.seconds)
        results[task.name] = seconds
        print(f"\n{table(task, options.micro_batches, seconds)}", flush=True)
    keep(options.json, cuts=results)


if __name__ == "__main__":
    main()
