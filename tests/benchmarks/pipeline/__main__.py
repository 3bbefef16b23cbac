"""Step times, bubbles and efficiencies: a table for each task on standard output."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, PROCESSES, TORCH, Runtime, commands
from tests.benchmarks.cores import POLICY
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup, tell
from tests.benchmarks.pipeline.tasks import WITH_TORCH, Task
from tests.benchmarks.report import markdown, three_digits
from tests.benchmarks.rounds import machine, quartiles, ratio, rotating
from tnt_notebook.plan import families
from tnt_notebook.plan.simulate import bubble, even_costs, simulate

_HERE = "tests.benchmarks.pipeline."

#: Who runs where: the runtime, the module of its ranks, and whether it has one rank only.
CONTESTANTS: dict[str, tuple[Runtime, str, bool]] = {
    "tnt": (OPEN_MPI, _HERE + "rank_tnt", False),
    "alone": (PROCESSES, _HERE + "rank_alone", True),
    "torch": (TORCH, _HERE + "rank_torch", False),
    "torch alone": (TORCH, _HERE + "rank_torch", True),
}


def measure(task: Task, ranks: int, micro: int, schedules: list[str], rounds: int) -> dict:
    """Figures of each contestant's rounds."""
    # Its stages are cut for two.
    field = [name for name in CONTESTANTS if ranks == 2 or not name.startswith("torch")]
    with tempfile.TemporaryDirectory(prefix="tnt-pipeline-") as folder:
        library = native.compiled(Path(folder))

        def start(name: str) -> Job:
            runtime, module, single = CONTESTANTS[name]
            n = 1 if single else ranks
            return Job(n, commands(runtime, n, [module, task.name]), library, timeout=600)

        with Lineup({name: partial(start, name) for name in field}) as lineup:

            def turn(name: str, **request: object) -> dict | None:
                answers = lineup.ask(name, micro_batches=micro, **request)
                return None if answers is None else merged(answers)

            turns = {s: partial(turn, "tnt", schedule=s) for s in schedules if "tnt" in lineup}
            turns |= {name: partial(turn, name) for name in field[1:] if name in lineup}
            for begin in turns.values():
                begin()  # traces
            tell(f"{task.title}, {micro} micro-batches: begins")
            results = rotating(list(turns.values()), rounds)
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
    title = f"{task.title}, {ranks} ranks, {micro} micro-batches"
    notes = "\n".join(f"- {note}" for note in figures["notes"])
    return f"{title}\n\n{markdown(rows)}\n\n{notes}"


def formula_of(name: str, ranks: int, micro: int) -> float:
    """The bubble if all stages are alike, and messages cost nothing."""
    schedule = families.make(name, ranks, micro)
    return bubble(simulate(schedule, even_costs(schedule.stages)), ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=WITH_TORCH, default=list(WITH_TORCH))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "zb-h1"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()
    print(f"{machine()}; {POLICY}; one compute thread a rank", flush=True)
    results = []
    for task in (WITH_TORCH[name] for name in options.tasks):
        for micro in options.micro_batches:
            results.append(measure(task, options.ranks, micro, options.schedules, options.rounds))
            print(f"\n{table(task, results[-1])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "pipeline": results}))


if __name__ == "__main__":
    main()
