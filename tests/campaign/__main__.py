"""``make campaign SECONDS=600``: random faults while models train, each judged as a person would.

    python -m tests.campaign [--seconds S] [--seed N] [--only ROW] [--report FILE]

A row is a training (model, strategy, what to do when ranks die), a fault and a moment, drawn by
chance from the seed and the number of the row, so ``--only`` repeats one. After the fault the
notebook has to name what happened, in time; ranks that are left, or are started again, have to
train the same model to the very weights of a training that nothing has disturbed; and after the
end of the cluster nothing may be left. The last line says how many rows fell short.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from tests.campaign import faults, trainings
from tests.campaign.row import Row, Setting, run

#: Rows that share a cluster, unless one of them leaves it broken.
ROWS_PER_CLUSTER = 12


def rows(seed: int) -> Iterator[Row]:
    """Without an end."""
    number = 0
    while True:
        ranks = Random(f"{seed} cluster {number // ROWS_PER_CLUSTER}").choice([2, 2, 3, 4])
        chance = Random(f"{seed} row {number}")
        training = trainings.drawn(chance, ranks)
        yield Row(number, training, faults.drawn(chance, ranks))
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one row")
    parser.add_argument("--report", type=Path, help="a file for a line of JSON a row")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    begin, judged = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="tnt-campaign-") as folder:
        setting = Setting(Path(folder))
        try:
            for row in rows(arguments.seed):
                if arguments.only not in (None, row.number):
                    continue
                if time.monotonic() - begin > arguments.seconds:
                    break
                if row.number % ROWS_PER_CLUSTER == 0:
                    setting.end_cluster()
                verdict = run(setting, row)
                judged.append(verdict)
                console.print(str(verdict), style="red" if verdict.short else None)
                if arguments.report:
                    with arguments.report.open("a") as file:
                        file.write(json.dumps(verdict.record()) + "\n")
                if arguments.only is not None:
                    break
        except KeyboardInterrupt:
            console.print("interrupted: the rows so far")
        finally:
            left = setting.end_cluster()
    table = Table("kind", "rows", "fell short", "median s", "longest s")
    for kind in sorted({v.row.fault.kind for v in judged}):
        of_kind = [v for v in judged if v.row.fault.kind == kind]
        seconds = sorted(v.seconds for v in of_kind)
        short = sum(bool(v.short) for v in of_kind)
        middle = seconds[len(seconds) // 2]
        table.add_row(kind, str(len(of_kind)), str(short), f"{middle:.1f}", f"{seconds[-1]:.1f}")
    console.print(table)
    short = sum(bool(v.short) for v in judged) + bool(left)
    late = sum(v.late for v in judged)
    console.print(
        f"seed {arguments.seed}: {len(judged) - late} faults, {short} fell short {left or ''}"
        f"({late} rows beside them whose fit had ended before)"
    )
    sys.exit(1 if short else None)


if __name__ == "__main__":
    main()
