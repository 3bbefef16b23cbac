"""The race as Markdown."""

from __future__ import annotations

import statistics

from tests.benchmarks.allreduce.field import FLOOR, MODES, OTHERS, OURS
from tests.benchmarks.allreduce.race import Entry, Race, best_over, rounds_of
from tests.benchmarks.report import line, section, sized, three_digits
from tests.benchmarks.rounds import ratio


def tables(race: Race) -> str:
    """A table for each mode, and who took part."""
    return "\n\n".join([_table(race, MODES[0], []), _table(race, MODES[1], race.notes)])


def _table(race: Race, mode: str, notes: list[str]) -> str:
    entries = {(e.size, e.label): e for e in race.entries if e.mode == mode}
    names = [c.name for c in (OURS, *OTHERS, FLOOR) if any(n == c.name for _, n in entries)]
    heads = ["size", "cache line, ns", *(f"{name}, µs" for name in names)]
    rows = [[*heads, "best other / tnt", "tnt / floor"]]
    for size, trips in race.line_ns.items():
        here = {name: entries[size, name] for name in names if (size, name) in entries}
        times = [_microseconds(here.get(name)) for name in names]
        best = best_over(here, [c.name for c in OTHERS], OURS.name)
        rows.append([sized(size), line(trips), *times, best, _against_floor(here)])
    of = rounds_of(list(entries.values()))
    title = f"Allreduce, float32, {race.ranks} ranks, {mode}: median of {of} (fastest)"
    return section(title, rows, notes)


def _microseconds(entry: Entry | None) -> str:
    if entry is None:
        return ""
    median, fastest = statistics.median(entry.medians), min(entry.fastest)
    return f"{three_digits(1e6 * median)} ({three_digits(1e6 * fastest)})"


def _against_floor(here: dict[str, Entry]) -> str:
    if OURS.name not in here or FLOOR.name not in here:
        return ""
    return str(ratio(here[OURS.name].medians, here[FLOOR.name].medians))
