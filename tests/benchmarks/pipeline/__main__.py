"""Step times, bubbles and efficiencies: a table for each task on standard output."""

from __future__ import annotations

import statistics
from argparse import Namespace
from functools import partial

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TORCH, Runtime, commands
from tests.benchmarks.cores import POLICY
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.pipeline.tasks import DENSE, WITH_TORCH, Task
from tests.benchmarks.report import keep, parser, section, three_digits
from tests.benchmarks.rounds import counted, machine, quartiles, ratio, rotating, tell
from tests.support.cases import THOROUGH
from tnt_notebook.plan import families
from tnt_notebook.plan.simulate import even_costs, simulate

TASKS, MICRO_BATCHES = (list(WITH_TORCH), [8, 16]) if THOROUGH else ([DENSE.name], [8])

_HERE = "tests.benchmarks.pipeline."

#: Who runs where: the runtime, the module of its ranks, and whether it has one rank only.
CONTESTANTS: dict[str, tuple[Runtime, str, bool]] = {
    "tnt": (OPEN_MPI, _HERE + "rank_tnt", False),
    "alone": (PROCESSES, _HERE + "rank_alone", True),
    "torch": (TORCH, _HERE + "rank_torch", False),
    "torch alone": (TORCH, _HERE + "rank_torch", True),
}


def measure(task: Task, micro: int, options: Namespace) -> dict:
    """Figures of each contestant's rounds."""
    ranks = options.ranks
    # Its stages are cut for two.
    field = [name for name in CONTESTANTS if ranks == 2 or not name.startswith("torch")]
    with native.library() as library:

        def start(name: str) -> Job:
            runtime, module, single = CONTESTANTS[name]
            n = 1 if single else ranks
            return Job(n, commands(runtime, n, [module, task.name]), library, timeout=600)

        with Lineup({name: partial(start, name) for name in field}) as lineup:

            def turn(name: str, **request: object) -> dict | None:
                answers = lineup.ask(name, micro_batches=micro, **request)
                return None if answers is None else merged(answers)

            turns = {
                s: partial(turn, "tnt", schedule=s) for s in options.schedules if "tnt" in lineup
            }
            turns |= {name: partial(turn, name) for name in field[1:] if name in lineup}
            for begin in turns.values():
                begin()  # traces
            tell(f"  {task.title}, {micro} micro-batches: begins")
            results = rotating(list(turns.values()), options.rounds, options.seconds)
            found = dict(zip(turns, results, strict=True))
            return {
                "task": task.name,
                "ranks": ranks,
                "micro_batches": micro,
                "rounds": {name: r for name, r in found.items() if None not in r},
                "notes": lineup.notes(),
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


def table(task: Task, figures: dict) -> str:
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
    title = f"{task.title}, {ranks} ranks, {micro} micro-batches; medians of {of}"
    return section(title, rows, figures["notes"])


def formula_of(name: str, ranks: int, micro: int) -> float:
    """The bubble if all stages are alike, and messages cost nothing."""
    schedule = families.make(name, ranks, micro)
    return simulate(schedule, even_costs(schedule.stages)).bubble


def main() -> None:
    asked = parser(__doc__, rounds=7, seconds=100)
    asked.add_argument("--tasks", nargs="+", choices=WITH_TORCH, default=TASKS)
    asked.add_argument("--ranks", type=int, default=2)
    asked.add_argument("--micro-batches", type=int, nargs="+", default=MICRO_BATCHES)
    asked.add_argument("--schedules", nargs="+", default=["1f1b", "zb-h1"])
    options = asked.parse_args()
    print(f"{machine()}; {POLICY}; one compute thread a rank", flush=True)
    results = []
    for task in (WITH_TORCH[name] for name in options.tasks):
        for micro in options.micro_batches:
            results.append(measure(task, micro, options))
            print(f"\n{table(task, results[-1])}", flush=True)
    keep(options.json, pipeline=results)


if __name__ == "__main__":
    main()
