"""Memory that was planned for steps, beside what they take.

    python -m tests.benchmarks.plan.memory --models mlp transformer

Of each model and way to train it: what the rank that needs most needs by plan, and the most that
TensorFlow's allocator has given it at a time while it trains, of models that are built lazily. The
error is that of the plan: planned / measured - 1. Convolutions on CPUs take buffers of 30 MiB each,
whatever they need of them: the rest is never touched, but counted here.
"""

import statistics
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.plan.__main__ import BATCHES, WAYS
from tests.benchmarks.plan.ranks import MODELS, memory_of, needed
from tests.benchmarks.report import reported, section, three_digits
from tests.support.rank_pool import RankPool
from tnt_notebook.plan.best import Way


def compared(asked: Namespace) -> Iterator[tuple[str, dict]]:
    """For each model, and then all of them together."""
    errors = []
    for name in asked.models:
        found = one(name)
        errors += [abs(row["planned"] / row["measured"] - 1) for row in found]
        yield table(name, found), {"model": name, "rows": found}
    within = sum(error <= 0.1 for error in errors) / len(errors)
    yield (
        (
            f"{len(errors)} ways: median error {statistics.median(errors):.0%}, {within:.0%} "
            f"within 10%, largest {max(errors):.0%}"
        ),
        {},
    )


def one(name: str) -> list[dict]:
    """What was planned and measured of a model, in bytes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        counts = {"TF_CPU_ALLOCATOR_USE_BFC": "1"}  # what it gives, and gets back
        ranks = RankPool(
            Path(folder), {"TF_NUM_INTRAOP_THREADS": "1", "XDG_CACHE_HOME": folder, **counts}
        )
        try:
            for batch_size in BATCHES:
                planned, *_ = ranks.run(2, memory_of, name, batch_size, WAYS)
                for way, bytes in zip(WAYS, planned, strict=True):
                    if bytes:
                        measured = max(ranks.run(2, needed, name, batch_size, way))
                        rows.append(
                            {"batch_size": batch_size, "way": asdict(way), "planned": bytes}
                            | {"measured": measured}
                        )
        finally:
            ranks.stop()
    return rows


def table(name: str, found: list[dict]) -> str:
    rows = [["", "batch", "planned, MB", "measured, MB", "error"]]
    for row in found:
        planned, measured = row["planned"], row["measured"]
        rows.append(
            [
                Way(**row["way"]).typed or "whole copies",
                str(row["batch_size"]),
                three_digits(planned / 1e6),
                three_digits(measured / 1e6),
                f"{planned / measured - 1:+.0%}",
            ]
        )
    return section(f"**{name}** on 2 ranks", rows, [])


if __name__ == "__main__":
    models = {"nargs": "+", "default": list(MODELS), "choices": MODELS}
    reported(__doc__, rounds=1, seconds=60, measured=compared, models=models)
