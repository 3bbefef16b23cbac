"""Many cells on many ranks: nothing is lost, and nothing grows."""

import gc
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.support.cases import THOROUGH
from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.output import late_output
from tnt_notebook.warden import processes_of

RANKS, CELLS = (16, 600) if THOROUGH else (3, 100)
WARM = 20  # cells, until libraries have filled their caches
KB = 48  # that each rank prints in a cell
#: MB. What ranks print in all cells is 19 MB or more, and each of them 6; what the controller has
#: not yet looked at on a busy machine is less.
MAY_GROW = {"this process": 16.0, "tnt_notebook.engine": 3.0, "ipyparallel": 24.0}


@pytest.fixture
def crowd(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Sixteen ranks where there is time for them, else those of other tests."""
    if not THOROUGH:
        yield request.getfixturevalue("cluster")
        return
    cluster = Cluster(RANKS, timeout=180.0)
    yield cluster
    cluster.stop()


def footprints(cluster: Cluster) -> dict[str, tuple[float, int, int]]:
    """Of this process and of each of a cluster, by what it is and its pid: memory that it shares
    with none, in MB; threads; open files."""
    processes = {"this process": psutil.Process()}
    for process in map(psutil.Process, processes_of(cluster.id)):
        processes[f"{' '.join(process.cmdline())} ({process.pid})"] = process
    return {
        name: (p.memory_full_info().uss / 1e6, p.num_threads(), p.num_fds())
        for name, p in processes.items()
    }


def test_cells_leave_nothing_behind(crowd, capsys):
    client, seconds = crowd._engines.client, []
    waiting = client.outstanding, client._output_futures
    asked = {request for those in (*waiting, client._futures) for request in those}
    for number in range(CELLS):
        if number == WARM:
            gc.collect()
            before = footprints(crowd)
        begin = time.perf_counter()
        crowd.run(
            f"print('cell', {number})\nprint(str({number} % 10) * {KB << 10})\n"
            f"print(__import__('tnt_notebook').comm.rank())\n{number}"
        )
        seconds.append(time.perf_counter() - begin)
        assert capsys.readouterr().out.splitlines() == [
            f"ranks 0-{RANKS - 1}: cell {number}",
            f"ranks 0-{RANKS - 1}: {str(number % 10) * (KB << 10)}",
            *(f"rank {rank}: {rank}" for rank in range(RANKS)),
            f"ranks 0-{RANKS - 1}: {number}",
        ]
    gc.collect()
    after = footprints(crowd)
    assert before.keys() == after.keys() and len(after) >= 2 * RANKS
    for name, (memory, *others) in after.items():
        memory_before, *others_before = before[name]
        grown = memory - memory_before
        may = next(may for kind, may in MAY_GROW.items() if kind in name)
        assert grown < may, f"{name} grew by {grown:.1f} MB"
        assert others == others_before, name
    # What a rank of an earlier test has never answered is not of these cells.
    kept = (client.results, *(set(those) - asked for those in waiting))
    assert not any(map(len, kept)) and len(client.history) <= RANKS
    # Of the last ones it is heard what comes late.
    assert len(set(client._futures) - asked) <= RANKS * late_output.CELLS
    assert set(client.metadata) <= {"submitted", *client._futures}
    late = sorted(seconds[-WARM:])[WARM // 2] / sorted(seconds[WARM : 2 * WARM])[WARM // 2]
    assert late < 3, "later cells take longer"


def test_what_threads_print_after_their_cell_does_not_pile_up(cluster, capsys):
    cluster.run(
        "import threading\nended = threading.Event()\n"
        "def tick(ended):\n"
        "    while not ended.wait(0.01): print('x' * 10_000, flush=True)\n"
        "thread = threading.Thread(target=tick, args=[ended])\nthread.start()"
    )
    client, shown = cluster._engines.client, 0

    def much() -> bool:
        nonlocal shown
        shown += len(capsys.readouterr().out)
        return shown > 200_000

    eventually(much)
    cluster.run("ended.set(); thread.join()")
    cluster.run("")
    assert sum(len(said["stdout"]) for said in _kept(client)) < 100_000


def _kept(client: object) -> list[dict[str, str]]:
    metadata = dict(client.metadata)  # type: ignore[attr-defined]
    return [said for request, said in metadata.items() if request != "submitted"]
