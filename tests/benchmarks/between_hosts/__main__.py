"""This backend, with the algorithm that it chooses and others, and Open MPI, on emulated hosts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from functools import partial
from pathlib import Path

from tests.benchmarks import native
from tests.benchmarks.allreduce.field import OTHERS, OURS, Contestant, Entrant
from tests.benchmarks.allreduce.race import Entry, measured
from tests.benchmarks.cores import POLICY, are_shared
from tests.benchmarks.job import Command, Job
from tests.benchmarks.lineup import Lineup, tell
from tests.benchmarks.report import markdown, sized
from tests.benchmarks.rounds import machine, ratio
from tests.support.goodput import Link
from tests.support.goodput import measured as measured_link
from tests.support.hosts import hosts, unavailable

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


def measure(count: int, ranks_per_host: int, rate: str, delay_us: int, rounds: int) -> Figures:
    """Makes the hosts, measures their links, and lets the contestants run."""
    algorithms = ["", *FLAT, *([HIERARCHICAL] if ranks_per_host > 1 else [])]
    entrants = [Entrant(OURS.name, algorithm=name) for name in algorithms]
    entrants.append(Entrant(OPEN_MPI.name))
    with hosts(count, rate, delay_us) as rack:
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
                entries += measured(lineup, entrants, size, rounds)
                tell(f"{count} hosts, {ranks_per_host} ranks each, {size} bytes: done")
            return Figures(count, ranks_per_host, rack.delay_us, link, entries, lineup.notes())


def table(figures: Figures) -> str:
    """Times, and how much of the link each allreduce used."""
    labels = list(dict.fromkeys(entry.label for entry in figures.entries))
    rows = [["size", *labels, "open mpi / tnt", "best flat / hierarchical"]]
    for size in SIZES:
        here = {entry.label: entry for entry in figures.entries if entry.size == size}
        cells = [_cell(here[label], figures) if label in here else "" for label in labels]
        flat = [f"{OURS.name} {name}" for name in FLAT]
        against = _ratio(here, [OPEN_MPI.name], OURS.name)
        rows.append([sized(size), *cells, against, _ratio(here, flat, f"{OURS.name} hierarchical")])
    title = (
        f"{figures.hosts} hosts, {figures.ranks_per_host} ranks each; one link carries "
        f"{figures.link.bits_per_second / 1e6:.0f} Mbit/s of TCP payload, a round trip takes "
        f"{1e6 * figures.link.round_trip_s:.0f} µs. In ms, and how much of the link is used:"
    )
    notes = "\n".join(f"- {note}" for note in figures.notes)
    return f"{title}\n\n{markdown(rows)}\n\n{notes}"


def _cell(entry: Entry, figures: Figures) -> str:
    """Each host must send and receive at least 2 (n - 1) / n of the vector."""
    seconds = statistics.median(entry.medians)
    bits = 8 * entry.size * 2 * (figures.hosts - 1) / figures.hosts
    return f"{1e3 * seconds:.2f} ({bits / seconds / figures.link.bits_per_second:.0%})"


def _ratio(here: dict[str, Entry], others: list[str], ours: str) -> str:
    present = [here[label] for label in others if label in here]
    if ours not in here or not present:
        return ""
    best = min(present, key=lambda entry: statistics.median(entry.medians))
    return str(ratio(best.medians, here[ours].medians))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--ranks-per-host", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--delay-us", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()
    if unavailable():
        print(f"LEFT OUT: between hosts: {unavailable()}")
        return
    results = [
        measure(count, ranks, options.rate, options.delay_us, options.rounds)
        for count in options.hosts
        for ranks in options.ranks_per_host
    ]
    print(f"{machine()}; {POLICY}")
    for figures in results:
        print(f"\n{table(figures)}")
    if options.json:
        figures = [dataclasses.asdict(figures) for figures in results]
        options.json.write_text(json.dumps({"machine": machine(), "hosts": figures}))


if __name__ == "__main__":
    main()
