"""Allreduce between hosts that are joined by 1 Gbit/s and 0.1 ms, emulated on this machine.

    python -m tests.benchmarks.between_hosts --json hosts.json

This backend, with the algorithm that it chooses and others, and Open MPI: how much of what TCP
carries over one link does an allreduce make use of, and what does it bring to add up on each host
first? Needs what `tests.support.hosts` needs: root, mostly.
"""

import dataclasses
import statistics
import sys
from argparse import Namespace
from collections.abc import Iterator

from tests.benchmarks.allreduce.race import Entrant, Entry, best_over, measured, rounds_of
from tests.benchmarks.cores import are_shared
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import reported, section, sized
from tests.benchmarks.rounds import tell
from tests.support.cases import THOROUGH
from tests.support.goodput import Link
from tests.support.goodput import measured as measured_link
from tests.support.hosts import hosts, unavailable

HOSTS, RANKS_PER_HOST = ((2, 4), (1, 2)) if THOROUGH else ((2,), (1,))
SIZES = tuple(1024 * kb for kb in (64, 1024, 4096, 16384))
#: The names of the contestants, and what their ranks run.
FIELD = {"tnt": "tnt", "open mpi": "mpi"}
OURS, OPEN_MPI = FIELD
FLAT, HIERARCHICAL = ("ring", "recursive_doubling"), "hierarchical"


def measure(count: int, ranks_per_host: int, options: Namespace) -> tuple[str, dict]:
    """Makes the hosts, measures their links, and lets the contestants run."""
    algorithms = ["", *FLAT, *([HIERARCHICAL] if ranks_per_host > 1 else [])]
    entrants = [Entrant(OURS, algorithm=name) for name in algorithms] + [Entrant(OPEN_MPI)]
    ranks = count * ranks_per_host
    with hosts(count, options.rate, options.delay_us) as rack:
        link = measured_link(rack[0], rack[1])
        # No host knows that it shares its cores with the others.
        settings = ["env", "OMPI_MCA_mpi_yield_when_idle=1"] if are_shared(ranks) else []
        seat = [*rack.mpiexec(ranks_per_host), sys.executable, "-m", "tests.benchmarks.seat"]

        def start(name: str) -> Job:
            function = f"tests.benchmarks.allreduce.ranks:{FIELD[name]}"
            return Job(ranks, [[*settings, *seat, function]], popen=rack[0].popen)

        with Lineup(FIELD, start) as lineup:
            entries = []
            for size in SIZES:
                entries += measured(lineup, entrants, size, options.rounds, options.seconds)
                tell(f"  {count} hosts, {ranks_per_host} ranks each, {size} bytes: done")
            delay_us, notes = rack.delay_us, lineup.notes
    title = (
        f"{count} hosts, {ranks_per_host} ranks each; one link carries "
        f"{link.bits_per_second / 1e6:.0f} Mbit/s of TCP payload, a round trip takes "
        f"{1e6 * link.round_trip_s:.0f} µs. In ms, medians of {rounds_of(entries)}, and how "
        "much of the link is used:"
    )
    return section(title, rows_of(entries, count, link), notes), {
        "hosts": count,
        "ranks_per_host": ranks_per_host,
        "delay_us": delay_us,
        "link": dataclasses.asdict(link),
        "entries": [dataclasses.asdict(entry) for entry in entries],
        "notes": notes,
    }


def rows_of(entries: list[Entry], hosts: int, link: Link) -> list[list[str]]:
    """Times, and how much of the link each allreduce used."""
    labels = list(dict.fromkeys(entry.label for entry in entries))
    rows = [["size", *labels, "open mpi / tnt", "best flat / hierarchical"]]
    for size in SIZES:
        here = {entry.label: entry for entry in entries if entry.size == size}
        cells = [_cell(here[label], hosts, link) if label in here else "" for label in labels]
        against = best_over(here, [OPEN_MPI], OURS)
        flat = [f"{OURS} {name}" for name in FLAT]
        rows.append([sized(size), *cells, against, best_over(here, flat, f"{OURS} {HIERARCHICAL}")])
    return rows


def _cell(entry: Entry, hosts: int, link: Link) -> str:
    """Each host must send and receive at least 2 (n - 1) / n of the vector."""
    seconds = statistics.median(entry.medians)
    bits = 8 * entry.size * 2 * (hosts - 1) / hosts
    return f"{1e3 * seconds:.2f} ({bits / seconds / link.bits_per_second:.0%})"


def racks(options: Namespace) -> Iterator[tuple[str, dict]]:
    if why := unavailable():
        print(f"LEFT OUT: between hosts: {why}")
        return
    for count in options.hosts:
        for ranks_per_host in options.ranks_per_host:
            yield measure(count, ranks_per_host, options)


if __name__ == "__main__":
    reported(
        __doc__, 9, 15, racks,
        hosts={"type": int, "nargs": "+", "default": HOSTS},
        ranks_per_host={"type": int, "nargs": "+", "default": RANKS_PER_HOST},
        rate={"default": "1gbit"},
        delay_us={"type": int, "default": 100},
    )  # fmt: skip
