"""``make bench``: all benchmarks, one after another, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.benchmarks.rounds import machine

BENCHMARKS = ("start", "empty_cell", "step_overhead", "telemetry", "checkpoint")

print(machine(), flush=True)
for name in BENCHMARKS:
    # One compute thread: the other core is left to the rest of the system.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{name}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    print(run.stdout.strip() if run.returncode == 0 else run.stderr, flush=True)
    if run.returncode:
        sys.exit(run.returncode)
