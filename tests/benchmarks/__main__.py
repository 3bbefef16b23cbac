"""``make bench`` and ``bench-comm``, ``-pipeline``, ...: each benchmark in a process of its own.

    python -m tests.benchmarks bench | comm | pipeline | exchange | layouts | input | plan [RESULTS]

RESULTS is a folder for all figures but those of ``bench`` as JSON. How to get those whom they
compare with is said in `contestants.py`; the benchmarks take options when they are run by
themselves. Each has so much time for its rounds, says how many it made, and how far it is.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.rounds import machine
from tests.support.cases import THOROUGH

BENCHMARKS = {
    "bench": ("start", "empty_cell", "step_overhead", "telemetry", "checkpoint"),
    "comm": ("allreduce", "tensorflow_op", "between_hosts", "training"),
    "pipeline": ("pipeline", "pipeline.cuts"),
    "exchange": ("exchange", "exchange.between_hosts", "exchange.accuracy"),
    "layouts": ("layouts",),
    "input": ("input",),
    "plan": ("plan",),
}
#: Seconds after which a benchmark hangs: far more than its rounds and what is around them need.
LIMIT = 6 * 3600 if THOROUGH else 1200


def run(name: str, results: Path | None) -> str | None:
    """What went wrong, if anything."""
    print(f"\n## {name}\n", flush=True)
    command = [sys.executable, "-m", f"tests.benchmarks.{name}"]
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        command += ["--json", str(results / f"{name}.json")]
    # One compute thread: the other core is left to the rest of the system.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}
    try:
        failed = subprocess.run(command, env=environment, timeout=LIMIT).returncode
    except subprocess.TimeoutExpired:
        return f"{name} hung, and was ended after {LIMIT} s."
    return f"{name} failed." if failed else None


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in BENCHMARKS:
        sys.exit(__doc__)
    print(machine(), flush=True)
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    failures = [run(name, folder) for name in BENCHMARKS[sys.argv[1]]]
    sys.exit("\n".join(filter(None, failures)) or None)
