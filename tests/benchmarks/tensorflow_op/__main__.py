"""Microseconds of an op and of a call, from interleaved rounds."""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.cores import POLICY, cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.rounds import machine, quartiles, ratio, rotating
from tests.benchmarks.tensorflow_op.rank import CALLS, CHAIN, EMPTY, OPS, WAYS


def measure(ranks: int, size: int, rounds: int) -> tuple[dict[str, list[float]], float | None]:
    """Seconds of one op, of one call, and of an op less a call, in each round."""
    with tempfile.TemporaryDirectory(prefix="tnt-op-") as folder:
        library = native.compiled(Path(folder))
        command = commands(OPEN_MPI, ranks, ["tests.benchmarks.tensorflow_op.rank"])
        with Job(ranks, command, library) as job:

            def turn(way: str) -> float:
                return max(job.ask(way=way, bytes=size, iterations=20))

            results = rotating([partial(turn, way) for way in WAYS], rounds)
        line_ns = cache_line_ns(native.loaded(library))
    seconds = dict(zip(WAYS, results, strict=True))
    op = [(a - b) / CHAIN for a, b in zip(seconds[OPS], seconds[EMPTY], strict=True)]
    call = [a / CHAIN for a in seconds[CALLS]]
    more = [a - b for a, b in zip(op, call, strict=True)]
    return {"op": op, "call": call, "op less call": more}, line_ns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", type=int, default=4, help="in KB")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()
    seconds, line_ns = measure(options.ranks, 1024 * options.size, options.rounds)
    print(f"{machine()}; {POLICY}; cache line {line_ns or 0:.0f} ns")
    print(f"allreduce of {options.size} KB on {options.ranks} ranks, {CHAIN} in a row:")
    for name, rounds in seconds.items():
        low, median, high = (1e6 * value for value in quartiles(rounds))
        fastest = f", fastest {1e6 * min(rounds):.2f}" if name != "op less call" else ""
        print(f"  {name}: {median:.2f} µs (quartiles {low:.2f} to {high:.2f}){fastest}")
    print(f"  op / call: {ratio(seconds['op'], seconds['call'])}")
    if options.json:
        figures = {"machine": machine(), "line_ns": line_ns, "seconds": seconds}
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
