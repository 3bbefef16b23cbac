"""``make bench-comm``: what the backend is worth beside others; each part in a process of its own.

    TNT_BENCH_VENVS=FOLDER python -m tests.benchmarks.comm [RESULTS]

RESULTS is a folder for all figures as JSON. How to get those whom it compares with is said in
`contestants.py`; the parts take options when they are run by themselves.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PARTS = ("allreduce", "tensorflow_op", "between_hosts", "training")


def main(results: Path | None) -> int:
    """The number of parts that failed."""
    failed = 0
    for part in PARTS:
        print(f"\n## {part}\n", flush=True)
        command = [sys.executable, "-m", f"tests.benchmarks.{part}"]
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            command += ["--json", str(results / f"{part}.json")]
        failed += subprocess.run(command).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
