"""The first example of README: one process, which computes on all cores, beside ranks of one core.

    python -m tests.benchmarks.readme [RANKS]

What is timed is the cell, from its begin to the end of its training, where Keras is imported and
nothing traced yet: each time in processes of their own.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.rounds import interleaved
from tests.support.shared_cluster import started

ROUNDS, SECONDS = 5, 300.0
README = Path(__file__).parents[2] / "README.md"
IMPORTS = "import keras, sklearn.datasets"
ALONE = f"{IMPORTS}, sys, time\nbegan = time.perf_counter()\nexec(sys.argv[1])"
ALONE += "\nprint(time.perf_counter() - began)"


def example() -> str:
    """The cell, without its magic."""
    return README.read_text().partition("%%tnt_fit\n")[2].partition("```")[0]


def alone(cell: str) -> float:
    """Seconds in a process without tnt_notebook."""
    command = [sys.executable, "-c", ALONE, cell]
    ran = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return float(ran.stdout.splitlines()[-1])


def on_ranks(cell: str, ranks: int) -> float:
    """Seconds on ranks, as the notebook sees them."""
    with started(ranks, timeout=180.0) as cluster:
        cluster.run(IMPORTS)
        began = time.perf_counter()
        cluster.fit(cell, {}).wait()
        return time.perf_counter() - began


if __name__ == "__main__":
    os.environ.pop("TF_NUM_INTRAOP_THREADS", None)  # as a person has it
    number, cell = int(*sys.argv[1:] or [2]), example()
    found = interleaved(lambda: alone(cell), lambda: on_ranks(cell, number), ROUNDS, SECONDS)
    print(
        f"README's example, one process / {number} ranks: {found.sentence(2)}; "
        f"{found.a_seconds:.1f} s and {found.b_seconds:.1f} s"
    )
