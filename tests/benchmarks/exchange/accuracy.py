"""What each exchange costs in accuracy: the same training with each, on 2 and on 4 ranks.

    python -m tests.benchmarks.exchange.accuracy --json accuracy.json

The digits of scikit-learn, five seeds. Each exchange is compared with allreduce, seed by seed.
"""

import statistics
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.exchange.ranks import Learnt
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import reported, section
from tests.benchmarks.rounds import tell
from tnt_notebook.choices import EXCHANGES

RANKS, WIDTH, EPOCHS = (2, 4), 128, 40


def measure(ranks: int, options: Namespace) -> dict:
    """What each exchange has learnt with each seed."""
    results: dict[str, list[Learnt]] = {}
    notes: list[str] = []
    for name in EXCHANGES:

        def start(name: str) -> Job:
            words = ["exchange.ranks:learn", name, str(WIDTH)]
            return Job(ranks, commands(OPEN_MPI, ranks, *words))

        # Nothing is timed, so one after another.
        with Lineup([name], start) as lineup:
            results[name] = []
            for seed in range(options.seeds):
                turn = {name: (name, {"seed": seed, "epochs": EPOCHS})}
                found = lineup.rounds(turn, lambda answers: answers[0], 1, 0)
                results[name] += [Learnt(*one) for one in found.get(name, [])]
            notes += lineup.notes
        tell(f"  {ranks} ranks, {name}: done")
    return {"ranks": ranks, "learnt": results, "notes": notes}


def table(figures: dict) -> str:
    """A row for each exchange."""
    rows = [["", "accuracy, mean", "its standard deviation", "beside allreduce, in points"]]
    finals = {
        name: [100 * Learnt(*one).accuracies[-1] for one in found]
        for name, found in figures["learnt"].items()
    }
    for name, own in finals.items():
        if len(own) < len(finals["allreduce"]):
            continue
        beside = [a - b for a, b in zip(own, finals["allreduce"], strict=True)]
        mean, spread = statistics.fmean(own), statistics.stdev(own) if len(own) > 1 else 0.0
        rows.append([name, f"{mean:.1f} %", f"{spread:.1f}", f"{statistics.fmean(beside):+.1f}"])
    title = (
        f"Digits, Dense({WIDTH}) twice, {EPOCHS} epochs, {figures['ranks']} ranks, "
        f"{len(finals['allreduce'])} seeds"
    )
    return section(title, rows, figures["notes"])


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    for ranks in RANKS:
        figures = measure(ranks, options)
        yield table(figures), figures


if __name__ == "__main__":
    reported(__doc__, 1, 60, measured, seeds={"type": int, "default": 5})
