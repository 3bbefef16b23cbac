"""The race of allreduces: tables on standard output, all figures in a file."""

from __future__ import annotations

import dataclasses

from tests.benchmarks.allreduce.field import FIELD
from tests.benchmarks.allreduce.race import run
from tests.benchmarks.allreduce.table import tables
from tests.benchmarks.cores import POLICY
from tests.benchmarks.report import keep, parser
from tests.benchmarks.rounds import machine
from tests.support.cases import THOROUGH

KB = 1024
RANKS = (2, 4) if THOROUGH else (2,)
SIZES = (4, 16, 64, 256, 1024, 4096, 16384, 65536) if THOROUGH else (4, 64, 1024, 16384)


def main() -> None:
    asked = parser(__doc__, rounds=15, seconds=12)
    asked.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    asked.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in KB, at most 65536")
    asked.add_argument("--only", nargs="+", choices=[c.name for c in FIELD], help="contestants")
    options = asked.parse_args()

    contestants = [c for c in FIELD if not options.only or c.name in options.only]
    sizes = [KB * size for size in options.sizes]
    print(f"{machine()}; {POLICY}", flush=True)
    races = []
    for ranks in options.ranks:
        races.append(run(ranks, sizes, options.rounds, options.seconds, contestants))
        print(f"\n{tables(races[-1])}", flush=True)
    keep(options.json, races=[dataclasses.asdict(race) for race in races])


if __name__ == "__main__":
    main()
