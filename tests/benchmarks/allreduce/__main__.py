"""The race of allreduces: tables on standard output, all figures in a file."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from tests.benchmarks.allreduce.field import FIELD
from tests.benchmarks.allreduce.race import run
from tests.benchmarks.allreduce.table import tables
from tests.benchmarks.cores import POLICY
from tests.benchmarks.rounds import machine

KB = 1024
SIZES = (4, 16, 64, 256, 1024, 4096, 16384, 65536)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in KB, at most 65536")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=[c.name for c in FIELD], help="contestants")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()

    contestants = [c for c in FIELD if not options.only or c.name in options.only]
    sizes = [KB * size for size in options.sizes]
    races = [run(ranks, sizes, options.rounds, contestants) for ranks in options.ranks]
    print(f"{machine()}; {POLICY}")
    for race in races:
        print(f"\n{tables(race)}")
    if options.json:
        figures = {"machine": machine(), "races": [dataclasses.asdict(race) for race in races]}
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
