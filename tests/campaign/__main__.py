"""``make campaign SECONDS=600``: random faults while models train, each judged as a person would.

    python -m tests.campaign [--seconds S] [--seed N] [--jobs J] [--only ROW] [--report FILE]

A row is a training (model, strategy, what to do when ranks die), a fault and a moment, drawn by
chance from the seed and the number of the row, so ``--only`` repeats one. After the fault the
notebook has to name what happened, in time; ranks that are left, or are started again, have to
train the same model to the very weights of a training that nothing has disturbed; and after the
end of the cluster nothing may be left. Several clusters run at a time, since they wait much. The
last line says how many rows fell short.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from tests.campaign import faults, trainings
from tests.campaign.row import Row, Setting, Verdict, run

#: Rows that share a cluster, unless one of them leaves it broken.
ROWS_PER_CLUSTER = 12


def rows(seed: int, cluster: int) -> Iterator[Row]:
    """Those that share one cluster."""
    ranks = Random(f"{seed} cluster {cluster}").choice([2, 2, 3, 4])
    for number in range(cluster * ROWS_PER_CLUSTER, (cluster + 1) * ROWS_PER_CLUSTER):
        chance = Random(f"{seed} row {number}")
        training = trainings.drawn(chance, ranks)
        yield Row(number, training, faults.drawn(chance, ranks))


def of_cluster(arguments: argparse.Namespace, folder: Path, cluster: int) -> list[Verdict]:
    """Runs the rows of one cluster while there is time, tells of each, and ends the cluster."""
    console, setting = Console(soft_wrap=True), Setting(folder)
    verdicts: list[Verdict] = []
    try:
        for row in rows(arguments.seed, cluster):
            if arguments.only not in (None, row.number):
                continue
            if time.monotonic() > arguments.until:
                break
            verdicts.append(run(setting, row))
            console.print(str(verdicts[-1]), style="red" if verdicts[-1].short else None)
    except KeyboardInterrupt:
        pass
    left = setting.end_cluster()
    if left and verdicts:
        verdicts[-1].short += [f"left at the end of its cluster: {what}" for what in left]
        console.print(f"after row {verdicts[-1].row.number} there is left: {left}", style="red")
    if arguments.report:
        with arguments.report.open("a") as file:
            file.writelines(json.dumps(verdict.record()) + "\n" for verdict in verdicts)
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="clusters at a time")
    parser.add_argument("--only", type=int, help="the number of one row")
    parser.add_argument("--report", type=Path, help="a file for a line of JSON a row")
    arguments = parser.parse_args()
    arguments.until = time.monotonic() + arguments.seconds
    verdicts: list[Verdict] = []
    with (
        tempfile.TemporaryDirectory(prefix="tnt-campaign-") as name,
        ProcessPoolExecutor(arguments.jobs) as processes,
    ):
        one = arguments.only is not None
        clusters = iter([arguments.only // ROWS_PER_CLUSTER]) if one else itertools.count()
        running: set[Future[list[Verdict]]] = set()
        while True:
            is_time = time.monotonic() < arguments.until
            for cluster in itertools.islice(clusters, is_time * (arguments.jobs - len(running))):
                running.add(processes.submit(of_cluster, arguments, Path(name), cluster))
            if not running:
                break
            try:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                verdicts += itertools.chain.from_iterable(future.result() for future in ended)
            except KeyboardInterrupt:  # which the others have heard, too
                arguments.until = 0.0
    sys.exit(told(arguments.seed, verdicts))


def told(seed: int, verdicts: Sequence[Verdict]) -> int:
    """Shows what came out; 1 if something fell short."""
    console = Console(soft_wrap=True)
    table = Table("kind", "rows", "fell short", "median s", "longest s")
    for kind in sorted({v.row.fault.kind for v in verdicts}):
        of_kind = [v for v in verdicts if v.row.fault.kind == kind]
        seconds = sorted(v.seconds for v in of_kind)
        short = sum(bool(v.short) for v in of_kind)
        middle = seconds[len(seconds) // 2]
        table.add_row(kind, str(len(of_kind)), str(short), f"{middle:.1f}", f"{seconds[-1]:.1f}")
    console.print(table)
    late, short = sum(v.late for v in verdicts), sum(bool(v.short) for v in verdicts)
    console.print(
        f"seed {seed}: {len(verdicts) - late} faults, {short} fell short "
        f"({late} rows beside them whose fit had ended before)"
    )
    return min(short, 1)


if __name__ == "__main__":
    main()
