"""Ranks that print much: what is shown is in order, the rest is counted, and nothing piles up."""

import io
import os
import re
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.support.cases import THOROUGH
from tests.support.holes import written
from tests.support.waiting import eventually
from tnt_notebook.allowance import TEXT
from tnt_notebook.cluster import Cluster
from tnt_notebook.engine.log import MOST_BYTES
from tnt_notebook.errors import RankError

RANKS = 3
SECONDS = 60 if THOROUGH else 2
LINE = 100  # bytes with its end and the label
#: MB. Ten megabytes a second that were kept anywhere would be more in the long form.
MAY_GROW = 60


class Shown(io.TextIOBase):
    """Stands in for the notebook's output: checks lines as they come, and keeps none."""

    def __init__(self) -> None:
        self.next = [0] * RANKS  # line
        self.lines = [0] * RANKS
        self.left_out = [0.0] * RANKS  # bytes
        self.size = 0
        self.wrong: list[str] = []
        self.late = 0.0  # seconds from print to show, at most

    def write(self, text: str) -> int:
        now = time.time()
        self.size += len(text)
        for line in text.splitlines():
            words = line.split()
            if words[:1] not in (["rank"], ["ranks"]):  # what the notebook says of an interrupt
                continue
            if cut := re.search(r"\[([\d.]+) ([KM])B are not shown here", line):
                for rank in _ranks(words[1].rstrip(":")):  # of several where it is as much
                    self.left_out[rank] += float(cut[1]) * {"K": 1 << 10, "M": 1 << 20}[cut[2]]
                continue
            rank = int(words[1].rstrip(":"))
            if len(words) != 5 or int(words[2]) < self.next[rank]:
                self.wrong.append(line)
            else:
                self.next[rank] = int(words[2]) + 1
                self.lines[rank] += 1
                self.late = max(self.late, now - float(words[3]))
        return len(text)


def _ranks(label: str) -> list[int]:
    """Of "0", "0-2" or "0,2"."""
    spans = [[int(rank) for rank in span.split("-")] for span in label.split(",")]
    return [rank for span in spans for rank in range(span[0], span[-1] + 1)]


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


@pytest.mark.parametrize("megabytes_per_s", [10.0, 1e3])
def test_of_much_is_shown_what_can_be_and_how_much_it_was(cluster, monkeypatch, megabytes_per_s):
    output, grown = shown(cluster, printing(megabytes_per_s, SECONDS), monkeypatch)
    assert not output.wrong, output.wrong[:3]
    assert output.size < 2 * TEXT
    width = LINE - len("rank 0: ")
    for rank in range(RANKS):
        printed = width * cluster.pull("count", rank)
        counted = width * output.lines[rank] + output.left_out[rank]
        assert counted == pytest.approx(printed, rel=0.03)  # said in few digits
        assert output.next[rank] * width == printed  # its end is shown
    assert grown < MAY_GROW and output.late < SECONDS + 5


def test_interrupt_is_heard_behind_much_output(cluster, monkeypatch):
    pressed = []

    def press() -> None:
        log = cluster.folder.rank_log(0)
        begin = log.stat().st_size
        eventually(lambda: log.stat().st_size > begin + (20 << 20))
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
