"""What a notebook on the first host does with a cluster over a hostfile; it tells what happens."""

import os
import sys
import time
from pathlib import Path

from tests.support.cells import TRAIN
from tests.support.shared_cluster import started
from tnt_notebook.errors import TntError


def tell(word: str, *values: object) -> None:
    print(word, *values, flush=True)


def main(hostfile: str, folder: Path) -> None:
    with started(launcher="ssh", hostfile=hostfile) as cluster:
        record = cluster.record
        tell("ON", *(row.host for row in cluster.status()), record.reached)
        tell("BY", cluster.links.by)
        tell("FOLDER", *record.plan["folders"])
        fit = cluster.fit(TRAIN.format(epochs=2), {}).wait(300)
        tell("LOSS", *fit.history["loss"])
        fit = cluster.fit(TRAIN.format(epochs=10_000_000), {})
        while len(fit.frames) < 3:
            time.sleep(0.05)
        tell("TRAINS")
        sys.stdin.readline()  # until something has been done to a host
        begin = time.monotonic()
        try:
            fit.wait(300)
        except TntError as error:
            tell("AFTER", time.monotonic() - begin)
            tell("ERROR", *str(error).splitlines()[:1])
            tell("ALL", repr(str(error)))
        (folder / "again").write_text(f"{os.uname().nodename} slots=2\n")
    with started(launcher="ssh", hostfile=folder / "again") as again:
        tell("AGAIN", *(row.state for row in again.status()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
