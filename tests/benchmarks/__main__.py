"""``make bench``: all benchmarks, one after another, each in a process of its own.

Each has so much time for its rounds, says how many it made, and how far it is while it runs.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.benchmarks.rounds import machine, tell
from tests.support.cases import THOROUGH

BENCHMARKS = ("start", "empty_cell", "step_overhead", "telemetry", "checkpoint")

#: Seconds after which a benchmark hangs: far more than its rounds and what is around them need.
LIMIT = 7200 if THOROUGH else 1200

print(machine(), flush=True)
failed = []
for name in BENCHMARKS:
    tell(f"{name} begins")
    # One compute thread: the other core is left to the rest of the system.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}
    command = [sys.executable, "-m", f"tests.benchmarks.{name}"]
    try:
        if subprocess.run(command, env=environment, timeout=LIMIT).returncode:
            failed.append(f"{name} failed.")
    except subprocess.TimeoutExpired:
        failed.append(f"{name} hung, and was ended after {LIMIT} s.")
sys.exit("\n".join(failed) or None)
