"""Ranks that print much: all of it arrives, in order, and does not pile up on its way."""

import io
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.support.cases import THOROUGH
from tests.support.holes import written
from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster
from tnt_notebook.engine.log import MOST_BYTES
from tnt_notebook.errors import RankError

RANKS = 3
SECONDS = 60 if THOROUGH else 2
LINE = 100  # bytes with its end and the label
#: MB. Ten megabytes a second that were kept anywhere would be more in the long form; in the short
#: one it is what waits to be shown at most.
MAY_GROW = 160


class Shown(io.TextIOBase):
    """Stands in for the notebook's output: checks lines as they come, and keeps none."""

    def __init__(self) -> None:
        self.lines = [0] * RANKS
        self.size = 0
        self.wrong: list[str] = []
        self.late = 0.0  # seconds from print to show, at most

    def write(self, text: str) -> int:
        now = time.time()
        self.size += len(text)
        for line in text.splitlines():
            words = line.split()
            if len(words) != 5 or words[0] != "rank":
                self.wrong.append(line)
                continue
            rank = int(words[1].rstrip(":"))
            if int(words[2]) != self.lines[rank]:
                self.wrong.append(line)
            self.lines[rank] += 1
            self.late = max(self.late, now - float(words[3]))
        return len(text)


PRINT = """
import time
from tnt_notebook import comm
tail, count, begin = f"{{comm.rank()}}".ljust({width}, "."), 0, time.monotonic()
while (now := time.monotonic() - begin) < {seconds}:
    for _ in range(min(1000, int(now * {rate}) + 1 - count)):
        print(f"{{count:08}} {{time.time():.3f}} {{tail}}")
        count += 1
    time.sleep(0.001)
"""


def printing(megabytes_per_s: float, seconds: float) -> str:
    """A cell of all ranks together."""
    width = LINE - len("rank 0: 00000000 1795308740.656 \n")
    return PRINT.format(width=width, seconds=seconds, rate=megabytes_per_s * 1e6 / LINE / RANKS)


def shown(cluster: Cluster, cell: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Shown, float]:
    """What a cell printed, and by how many MB notebook and controller grew meanwhile at most."""
    watched = [psutil.Process(), psutil.Process(cluster.record.controller[0])]
    watched += watched[1].children()
    before = [process.memory_info().rss for process in watched]
    most, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.1):
            now = [process.memory_info().rss for process in watched]
            most = max(most, *((b - a) / 1e6 for a, b in zip(before, now, strict=True)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = Shown()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", output)
            cluster.run(cell)
    finally:
        over.set()
        watcher.join()
    return output, most


@pytest.mark.parametrize(("megabytes_per_s", "late"), [(10.0, 10), (1e3, 15)])
def test_much_arrives_whole_and_what_cannot_be_shown_as_fast_is_held_up(
    cluster, monkeypatch, megabytes_per_s, late
):
    output, grown = shown(cluster, printing(megabytes_per_s, SECONDS), monkeypatch)
    assert not output.wrong, output.wrong[:3]
    assert output.lines == [cluster.pull("count", rank) for rank in range(RANKS)]
    assert grown < MAY_GROW and output.late < late


def test_interrupt_is_heard_behind_much_output(cluster, monkeypatch):
    pressed = []

    def press() -> None:
        log = cluster.folder.rank_log(0)
        begin = log.stat().st_size
        eventually(lambda: log.stat().st_size > begin + (20 << 20), 60)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    person = threading.Thread(target=press)
    person.start()
    with pytest.raises(RankError, match="KeyboardInterrupt"):
        shown(cluster, printing(1e3, 200), monkeypatch)
    person.join()
    assert time.monotonic() - pressed[0] < 15


def test_the_log_of_a_rank_keeps_its_end(cluster):
    log: Path = cluster.folder.rank_log(1)
    much = "yes 2>/dev/null | head -c 200000000"  # yes says that its pipe broke
    cluster.run(f"import os\nos.system({much!r})\nprint('the end')", [1])
    # Before blocks are given back, some file systems write them: slow disks take their time.
    eventually(lambda: written(log) < MOST_BYTES + (1 << 20), 100)
    assert cluster.logs(1, 3).splitlines() == ["y", "y", "the end"]
    cluster.run("print('goes on')", [1])
    assert cluster.logs(1, 1) == "goes on"
