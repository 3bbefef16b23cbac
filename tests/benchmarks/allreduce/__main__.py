"""The race of allreduces, float32: this backend, MPI libraries, gloo, and the floor.

    python -m tests.benchmarks.allreduce --ranks 2 4 --json race.json

There are two modes: in place, the vector is summed where it lies; private, from one vector of the
rank's own memory into another.
"""

import dataclasses
import statistics
from argparse import Namespace
from collections.abc import Iterator, Mapping

from tests.benchmarks import native
from tests.benchmarks.allreduce.race import Entrant, Entry, best_over, measured, rounds_of
from tests.benchmarks.allreduce.ranks import CAPACITY
from tests.benchmarks.contestants import INTEL_MPI, MPICH, OPEN_MPI, PROCESSES, TORCH, commands
from tests.benchmarks.cores import cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import line, reported, section, sized, three_digits
from tests.benchmarks.rounds import ratio, tell
from tests.support.cases import THOROUGH

IN_PLACE, PRIVATE = MODES = ("in place", "private")
OURS, FLOOR = "tnt", "floor"

#: Where each contestant runs, what its ranks run, and the modes that it offers.
FIELD = {
    OURS: (OPEN_MPI, "tnt", MODES),
    "open mpi": (OPEN_MPI, "mpi", MODES),
    "mpich": (MPICH, "mpi", MODES),
    "intel mpi": (INTEL_MPI, "mpi", MODES),
    "gloo": (TORCH, "gloo", (IN_PLACE,)),
    FLOOR: (PROCESSES, "floor", MODES),
}
SIZES = (4, 16, 64, 256, 1024, 4096, 16384, 65536) if THOROUGH else (4, 64, 1024, 16384)


def race(ranks: int, options: Namespace) -> tuple[str, dict]:
    """A table for each mode, and who took part; and the figures."""

    def start(name: str) -> Job:
        runtime, function, _ = FIELD[name]
        probe = native.loaded(native.library())
        shared = probe.floor_bytes(ranks, CAPACITY) if name == FLOOR else 0
        return Job(ranks, commands(runtime, ranks, f"allreduce.ranks:{function}"), shared)

    names = [name for name in FIELD if not options.only or name in options.only]
    entrants = [Entrant(name, mode) for mode in MODES for name in names if mode in FIELD[name][2]]
    entries: list[Entry] = []
    # For each size the round trip of a cache line before and after it was measured.
    line_ns: dict[int, tuple[float | None, float | None]] = {}
    with Lineup(names, start) as lineup:
        for size in (1024 * kb for kb in options.sizes):
            before = cache_line_ns()
            entries += measured(lineup, entrants, size, options.rounds, options.seconds)
            line_ns[size] = before, cache_line_ns()
            tell(f"  {ranks} ranks, {size} bytes: done")
        notes = lineup.notes
    in_place = table(ranks, IN_PLACE, entries, line_ns, [])
    private = table(ranks, PRIVATE, entries, line_ns, notes)
    kept = [dataclasses.asdict(entry) for entry in entries]
    figures = {"ranks": ranks, "entries": kept, "line_ns": line_ns, "notes": notes}
    return f"{in_place}\n\n{private}", figures


def table(
    ranks: int, mode: str, entries: list[Entry], line_ns: Mapping[int, tuple], notes: list[str]
) -> str:
    """A row for each size: times of all, and the ratios that matter."""
    entries = [entry for entry in entries if entry.mode == mode]
    names = [name for name in FIELD if name in {entry.label for entry in entries}]
    heads = ["size", "cache line, ns", *(f"{name}, µs" for name in names)]
    rows = [[*heads, "best other / tnt", "tnt / floor"]]
    for size, trips in line_ns.items():
        here = {entry.label: entry for entry in entries if entry.size == size}
        times = [_microseconds(here[name]) if name in here else "" for name in names]
        best = best_over(here, set(FIELD) - {OURS, FLOOR}, OURS)
        over_floor = ""
        if OURS in here and FLOOR in here:
            over_floor = str(ratio(here[OURS].medians, here[FLOOR].medians))
        rows.append([sized(size), line(trips), *times, best, over_floor])
    of = rounds_of(entries)
    title = f"Allreduce, float32, {ranks} ranks, {mode}: median of {of} (fastest)"
    return section(title, rows, notes)


def _microseconds(entry: Entry) -> str:
    median, fastest = statistics.median(entry.medians), min(entry.fastest)
    return f"{three_digits(1e6 * median)} ({three_digits(1e6 * fastest)})"


def races(options: Namespace) -> Iterator[tuple[str, dict]]:
    for ranks in options.ranks:
        yield race(ranks, options)


if __name__ == "__main__":
    reported(
        __doc__, 15, 12, races,
        ranks={"type": int, "nargs": "+", "default": (2, 4) if THOROUGH else (2,)},
        sizes={"type": int, "nargs": "+", "default": SIZES, "help": "in KB, at most 65536"},
        only={"nargs": "+", "choices": list(FIELD), "help": "contestants"},
    )  # fmt: skip
