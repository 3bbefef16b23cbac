"""Steps as they were planned, beside steps as they are.

    python -m tests.benchmarks.plan --json plan.json
    python -m tests.benchmarks.plan --csv plan.csv --pictures docs/pictures

Of each model there is a plan for each way to train it; then it is trained so, in turn with the
others. The error is that of the plan: planned / measured - 1. Tau is Kendall's, of the order of the
ways to train a model, 1 where the plan has the same. `first` is what the way that is planned to be
the fastest takes, over what the fastest one takes. Ranks compute with one thread each.
"""

import math
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from scipy.stats import kendalltau

from tests.benchmarks.plan.ranks import MODELS, expected, trained
from tests.benchmarks.predicted_figure import written
from tests.benchmarks.report import reported, section, three_digits
from tests.benchmarks.rounds import counted, quartiles, rotating
from tests.support.rank_pool import RankPool
from tnt_notebook.plan.best import Way

#: Of two ranks; of more there are as many times as many replicas.
WAYS = [
    Way(2),
    Way(2, exchange="sharded"),
    Way(2, micro_batches=4),
    Way(1, 2, "gpipe", 4),
    Way(1, 2, "1f1b", 8),
    Way(1, 2, "zb-h1", 4),
    Way(1, 2, "interleaved", 4),
    Way(1, 2, "1f1b", 4, recompute=True),
    Way(1, mesh="model=2"),
    Way(1, mesh="height=2"),
]
#: Of which times of layers are known exactly, and of which they follow from others.
BATCHES = (64, 200)


def compared(asked: Namespace) -> Iterator[tuple[str, dict]]:
    """For each model and batch; and then all of them together."""
    everything = []
    with tempfile.TemporaryDirectory() as folder:
        ranks = RankPool(Path(folder), {"TF_NUM_INTRAOP_THREADS": "1", "XDG_CACHE_HOME": folder})
        try:
            for name in asked.models:
                for batch_size in BATCHES:
                    found = one(ranks, name, batch_size, asked)
                    everything.append(found)
                    yield table(found), found
        finally:
            ranks.stop()
    if asked.csv is not None:
        asked.csv.write_text(as_csv(everything))
    if asked.pictures is not None:
        groups = {
            model: [
                (1e3 * row["measured"][1], 1e3 * row["planned"])
                for found in everything if found["model"] == model
                for row in found["rows"]
            ]
            for model in asked.models
        }  # fmt: skip
        titles = "measured step, ms", "planned step, ms"
        written(groups, titles, asked.pictures, "planned")
    yield summary(everything), {}


def one(ranks: RankPool, name: str, batch_size: int, asked: Namespace) -> dict:
    """What was planned and measured of a model."""
    ways = [replace(way, replicas=way.replicas * asked.ranks // 2) for way in WAYS]
    if asked.ranks > 2:
        ways += [Way(1, asked.ranks, "1f1b", 2 * asked.ranks), Way(1, mesh=f"model={asked.ranks}")]
    planned, *_ = ranks.run(asked.ranks, expected, name, batch_size, ways)
    there_are = {way: s for way, s in zip(ways, planned, strict=True) if not math.isnan(s)}

    def run(way: Way) -> float:
        return ranks.run(asked.ranks, trained, name, batch_size, way, asked.steps)[0]

    turns = {way: (lambda way=way: run(way)) for way in there_are}
    measured = rotating(turns, asked.rounds, asked.seconds)
    rows = [
        {"way": way.typed or "whole copies", "planned": p, "measured": quartiles(m), "all": m}
        for (way, p), m in zip(there_are.items(), measured.values(), strict=True)
    ]
    return {"model": name, "batch_size": batch_size, "ranks": asked.ranks, "rows": rows}


def as_csv(everything: list[dict]) -> str:
    """A row for each way; seconds of a step."""
    rows = ["model,batch_size,ranks,way,planned_s,measured_s,measured_low_s,measured_high_s"]
    for found in everything:
        for row in found["rows"]:
            low, median, high = row["measured"]
            times = [f"{s:.6f}" for s in (row["planned"], median, low, high)]
            rows.append(
                f"{found['model']},{found['batch_size']},{found['ranks']},"
                f"{row['way']},{','.join(times)}"
            )
    return "\n".join(rows) + "\n"


def table(found: dict) -> str:
    rows = [["", "planned, ms", "measured, ms", "quartiles", "error"]]
    for row in found["rows"]:
        low, median, high = row["measured"]
        times = [three_digits(1e3 * s) for s in (row["planned"], median, low, high)]
        rows.append([row["way"], *times[:2], " to ".join(times[2:]), f"{error(row):+.0%}"])
    count = counted(len(found["rows"][0]["all"]))
    title = (
        f"**{found['model']}**, {found['batch_size']} samples on {found['ranks']} ranks, {count}"
    )
    return section(title, rows, [in_order(found)])


def in_order(found: dict) -> str:
    planned, measured = times_of(found)
    first = measured[planned.index(min(planned))] / min(measured)
    return f"tau {kendalltau(planned, measured).statistic:.2f}, first {first:.2f}"


def times_of(found: dict) -> tuple[list[float], list[float]]:
    rows = found["rows"]
    return [row["planned"] for row in rows], [row["measured"][1] for row in rows]


def error(row: dict) -> float:
    return row["planned"] / row["measured"][1] - 1


def summary(everything: list[dict]) -> str:
    errors = sorted(abs(error(row)) for found in everything for row in found["rows"])
    within = sum(one <= 0.1 for one in errors) / len(errors)
    taus = [kendalltau(*times_of(found)).statistic for found in everything]
    return (
        f"{len(errors)} ways: median error {statistics.median(errors):.0%}, {within:.0%} within "
        f"10%, largest {errors[-1]:.0%}; tau {statistics.fmean(taus):.2f} in the mean of "
        f"{len(everything)} models and batches, {min(taus):.2f} at least"
    )


if __name__ == "__main__":
    steps = {"type": int, "default": 30, "help": "of each fit, twice"}
    models = {"nargs": "+", "default": list(MODELS), "choices": MODELS}
    ranks = {"type": int, "default": 2, "choices": (2, 4), "help": "that train"}
    files = {"type": Path, "help": "a file for a row of each way"}
    pictures = {"type": Path, "help": "a folder for the figure, on light and dark pages"}
    reported(
        __doc__, rounds=3, seconds=120, measured=compared, steps=steps, models=models, ranks=ranks,
        csv=files, pictures=pictures,
    )  # fmt: skip
