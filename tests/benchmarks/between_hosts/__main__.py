"""This backend, with the algorithm that it chooses and others, and Open MPI, on emulated hosts."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from argparse import Namespace
from functools import partial

from tests.benchmarks import native
from tests.benchmarks.allreduce.field import OTHERS, OURS, Contestant, Entrant
from tests.benchmarks.allreduce.race import Entry, best_over, measured, rounds_of
from tests.benchmarks.cores import POLICY, are_shared
from tests.benchmarks.job import Command, Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.report import keep, parser, section, sized
from tests.benchmarks.rounds import machine, tell
from tests.support.cases import THOROUGH
from tests.support.goodput import Link
from tests.support.goodput import measured as measured_link
from tests.support.hosts import hosts, unavailable

HOSTS, RANKS_PER_HOST = ((2, 4), (1, 2)) if THOROUGH else ((2,), (1,))
SIZES = tuple(1024 * kb for kb in (64, 1024, 4096, 16384))
OPEN_MPI = OTHERS[0]
FLAT, HIERARCHICAL = ("ring", "recursive_doubling"), "hierarchical"


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured on so many hosts with so many ranks each."""

    hosts: int
    ranks_per_host: int
    delay_us: int
    link: Link
    entries: list[Entry]
    notes: list[str]


def measure(count: int, ranks_per_host: int, options: Namespace) -> Figures:
    """Makes the hosts, measures their links, and lets the contestants run."""
    algorithms = ["", *FLAT, *([HIERARCHICAL] if ranks_per_host > 1 else [])]
    entrants = [Entrant(OURS.name, algorithm=name) for name in algorithms]
    entrants.append(Entrant(OPEN_MPI.name))
    with hosts(count, options.rate, options.delay_us) as rack:
        link = measured_link(rack[0], rack[1])
        library = native.compiled(rack.folder)

        def start(contestant: Contestant) -> Job:
            command = (*rack.mpiexec(ranks_per_host), sys.executable, "-m", contestant.module)
            ranks = count * ranks_per_host
            # No host knows that it shares its cores with the others.
            environment = {"OMPI_MCA_mpi_yield_when_idle": "1"} if are_shared(ranks) else {}
            return Job(ranks, [Command(command, environment)], library, popen=rack[0].popen)

        with Lineup({c.name: partial(start, c) for c in (OURS, OPEN_MPI)}) as lineup:
            entries = []
            for size in SIZES:
                entries += measured(lineup, entrants, size, options.rounds, options.seconds)
                tell(f"  {count} hosts, {ranks_per_host} ranks each, {size} bytes: done")
            return Figures(count, ranks_per_host, rack.delay_us, link, entries, lineup.notes())


def table(figures: Figures) -> str:
    """Times, and how much of the link each allreduce used."""
    labels = list(dict.fromkeys(entry.label for entry in figures.entries))
    rows = [["size", *labels, "open mpi / tnt", "best flat / hierarchical"]]
    for size in SIZES:
        here = {entry.label: entry for entry in figures.entries if entry.size == size}
        cells = [_cell(here[label], figures) if label in here else "" for label in labels]
        flat = [f"{OURS.name} {name}" for name in FLAT]
        against = best_over(here, [OPEN_MPI.name], OURS.name)
        hierarchical = best_over(here, flat, f"{OURS.name} {HIERARCHICAL}")
        rows.append([sized(size), *cells, against, hierarchical])
    title = (
        f"{figures.hosts} hosts, {figures.ranks_per_host} ranks each; one link carries "
        f"{figures.link.bits_per_second / 1e6:.0f} Mbit/s of TCP payload, a round trip takes "
        f"{1e6 * figures.link.round_trip_s:.0f} µs. In ms, medians of "
        f"{rounds_of(figures.entries)}, and how much of the link is used:"
    )
    return section(title, rows, figures.notes)


def _cell(entry: Entry, figures: Figures) -> str:
    """Each host must send and receive at least 2 (n - 1) / n of the vector."""
    seconds = statistics.median(entry.medians)
    bits = 8 * entry.size * 2 * (figures.hosts - 1) / figures.hosts
    return f"{1e3 * seconds:.2f} ({bits / seconds / figures.link.bits_per_second:.0%})"


def main() -> None:
    asked = parser(__doc__, rounds=9, seconds=15)
    asked.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    asked.add_argument("--ranks-per-host", type=int, nargs="+", default=RANKS_PER_HOST)
    asked.add_argument("--rate", default="1gbit")
    asked.add_argument("--delay-us", type=int, default=100)
    options = asked.parse_args()
    if unavailable():
        print(f"LEFT OUT: between hosts: {unavailable()}")
        return
    print(f"{machine()}; {POLICY}", flush=True)
    results = []
    for count in options.hosts:
        for ranks in options.ranks_per_host:
            results.append(measure(count, ranks, options))
            print(f"\n{table(results[-1])}", flush=True)
    keep(options.json, hosts=[dataclasses.asdict(figures) for figures in results])


if __name__ == "__main__":
    main()
