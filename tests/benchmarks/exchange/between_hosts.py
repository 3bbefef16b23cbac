"""Time to the same loss, with each exchange, on hosts that a slow network joins.

    python -m tests.benchmarks.exchange.between_hosts --json between.json

Two emulated hosts of one rank each learn the digits of scikit-learn. How long does each exchange
take to the loss that allreduce has after six of eight epochs? Epochs until then, by the median
seconds of an epoch.
Needs what `tests.support.hosts` needs: root, mostly.
"""

import statistics
import sys
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks.cores import are_shared
from tests.benchmarks.exchange.ranks import Learnt
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import reported, section, three_digits
from tests.benchmarks.rounds import counted, quartiles, tell
from tests.support.hosts import hosts, unavailable
from tnt_notebook.sizes import size

#: Megabits a second that a host sends and receives, each with a delay of 0.1 ms.
RATES, DELAY_US = (100, 1000), 100
EXCHANGES = (
    "allreduce", "allreduce:wire=bfloat16", "late", "qsgd", "onebit", "topk", "powersgd",
    "local:every=8", "elastic:every=8", "gossip", "server",
)  # fmt: skip
#: 1.1 million weights, so that an allreduce of them takes 0.36 s at the lower rate.
WIDTH, EPOCHS, GOAL = 1000, 8, 6


def measure(rate: int, options: Namespace) -> dict:
    """What each exchange has learnt in each round, each of another seed."""
    with hosts(2, f"{rate}mbit", DELAY_US) as rack:
        settings = ["env", "OMPI_MCA_mpi_yield_when_idle=1"] if are_shared(2) else []
        seat = [*rack.mpiexec(ranks_per_host=1), sys.executable, "-m", "tests.benchmarks.seat"]

        def start(name: str) -> Job:
            words = ["tests.benchmarks.exchange.ranks:learn", name, str(WIDTH)]
            return Job(2, [[*settings, *seat, *words]], popen=rack[0].popen)

        with Lineup(EXCHANGES, start) as lineup:
            results: dict[str, list[Learnt]] = {name: [] for name in EXCHANGES}
            for seed in range(options.seeds):
                turns = {name: (name, {"seed": seed, "epochs": EPOCHS}) for name in EXCHANGES}
                for name, found in lineup.rounds(turns, lambda ranks: ranks[0], 1, 0).items():
                    results[name] += [Learnt(*one) for one in found]
                tell(f"  {rate} Mbit/s: {seed + 1} of {options.seeds} seeds")
            return {"rate": rate, "learnt": results, "notes": lineup.notes}


def time_to(loss: float, learnt: Learnt) -> float | None:
    """Seconds to the end of the first epoch with this loss or less; None: there was none."""
    reached = [epoch for epoch, found in enumerate(learnt.losses, 1) if found <= loss]
    return reached[0] * learnt.epoch_s if reached else None


def table(figures: dict) -> str:
    """A row for each exchange."""
    learnt = {name: [Learnt(*one) for one in found] for name, found in figures["learnt"].items()}
    goals = [one.losses[GOAL - 1] for one in learnt["allreduce"]]
    theirs = [time_to(goal, one) for goal, one in zip(goals, learnt["allreduce"], strict=True)]
    rows = [["", "sends a step", "steps/s", "loss", "accuracy",
             f"seconds to allreduce's loss after {GOAL}", "times as fast"]]  # fmt: skip
    for name, found in learnt.items():
        if len(found) < len(goals):
            continue
        times = [time_to(goal, one) for goal, one in zip(goals, found, strict=True)]
        pairs = [(own, his) for own, his in zip(times, theirs, strict=True) if own and his]
        row = [name, size(statistics.median(one.sent for one in found))]
        row.append(three_digits(statistics.median(one.steps / one.epoch_s for one in found)))
        row += [f"{statistics.median(one.losses[-1] for one in found):.3f}",
                f"{statistics.median(one.accuracies[-1] for one in found):.1%}"]  # fmt: skip
        if len(pairs) == len(goals):
            low, median, high = quartiles([his / own for own, his in pairs])
            row += [three_digits(statistics.median(own for own, _ in pairs)),
                    f"{median:.2f} ({low:.2f} to {high:.2f})"]  # fmt: skip
        else:
            row += [f"not in {EPOCHS} epochs, {len(goals) - len(pairs)} of {len(goals)}", ""]
        rows.append(row)
    title = (
        f"Digits, Dense({WIDTH}) twice, 2 hosts of one rank, {figures['rate']} Mbit/s: medians of "
        f"{counted(len(goals))}, each of another seed"
    )
    return section(title, rows, figures["notes"])


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    if problem := unavailable():
        sys.exit(f"Hosts cannot be emulated here: {problem}")
    for rate in RATES:
        figures = measure(rate, options)
        yield table(figures), figures


if __name__ == "__main__":
    reported(__doc__, 1, 60, measured, seeds={"type": int, "default": 3})
