"""Microseconds of an op and of a call, from interleaved rounds."""

from __future__ import annotations

from functools import partial

from tests.benchmarks import native
from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.cores import POLICY, cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.report import keep, parser
from tests.benchmarks.rounds import counted, machine, quartiles, ratio, rotating
from tests.benchmarks.tensorflow_op.rank import CALLS, CHAIN, EMPTY, OPS, WAYS


def measure(
    ranks: int, size: int, rounds: int, limit: float
) -> tuple[dict[str, list[float]], float | None]:
    """Seconds of one op, of one call, and of an op less a call, in each round."""
    with native.library() as library:
        command = commands(OPEN_MPI, ranks, ["tests.benchmarks.tensorflow_op.rank"])
        with Job(ranks, command, library) as job:

            def turn(way: str) -> float:
                return max(job.ask(way=way, bytes=size, iterations=20))

            turns = [partial(turn, way) for way in WAYS]
            for begin in turns:
                begin()  # traces
            results = rotating(turns, rounds, limit)
        line_ns = cache_line_ns(native.loaded(library))
    seconds = dict(zip(WAYS, results, strict=True))
    op = [(a - b) / CHAIN for a, b in zip(seconds[OPS], seconds[EMPTY], strict=True)]
    call = [a / CHAIN for a in seconds[CALLS]]
    more = [a - b for a, b in zip(op, call, strict=True)]
    return {"op": op, "call": call, "op less call": more}, line_ns


def main() -> None:
    asked = parser(__doc__, rounds=21, seconds=20)
    asked.add_argument("--ranks", type=int, default=2)
    asked.add_argument("--size", type=int, default=4, help="in KB")
    options = asked.parse_args()
    size = 1024 * options.size
    seconds, line_ns = measure(options.ranks, size, options.rounds, options.seconds)
    print(f"{machine()}; {POLICY}; cache line {line_ns or 0:.0f} ns")
    of = counted(len(seconds["op"]))
    print(f"allreduce of {options.size} KB on {options.ranks} ranks, {CHAIN} in a row, {of}:")
    for name, rounds in seconds.items():
        low, median, high = (1e6 * value for value in quartiles(rounds))
        fastest = f", fastest {1e6 * min(rounds):.2f}" if name != "op less call" else ""
        print(f"  {name}: {median:.2f} µs (quartiles {low:.2f} to {high:.2f}){fastest}")
    print(f"  op / call: {ratio(seconds['op'], seconds['call'])}")
    keep(options.json, line_ns=line_ns, seconds=seconds)


if __name__ == "__main__":
    main()
