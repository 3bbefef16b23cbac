"""How long a warm empty cell takes on 4 ranks, beside ipyparallel's own way to run one."""

import time

from tests.benchmarks.rounds import interleaved
from tests.support.shared_cluster import started

RANKS = 4
ROUNDS, SECONDS = 30, 30.0


def measure() -> str:
    """One line: seconds of a cell, and the ratio to ``%%px`` on the same engines."""
    with started(RANKS) as cluster:
        view = cluster._engines.client[:]

        def ours() -> float:
            began = time.perf_counter()
            cluster.run("pass")
            return time.perf_counter() - began

        def theirs() -> float:
            began = time.perf_counter()
            view.execute("pass", silent=False, block=True)
            return time.perf_counter() - began

        for _ in range(3):
            ours(), theirs()
        ratio = interleaved(ours, theirs, ROUNDS, SECONDS)
    return (
        f"warm empty cell on {RANKS} ranks, %%tnt / ipyparallel's execute: {ratio.sentence(2)}; "
        f"{1e3 * ratio.a_seconds:.0f} ms a cell"
    )


if __name__ == "__main__":
    print(measure())
