"""Cells on real ranks: output, errors, interrupts, variables."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from tests.support.waiting import eventually
from tnt_notebook.errors import ClusterError, RankError

RANK = "from tnt_notebook import comm\nrank = comm.rank()\n"


def test_what_ranks_print_comes_in_rank_order_and_identical_lines_once(cluster, capsys):
    for cell, ranks, shown in (
        (RANK + "print('hello')\nprint(rank * 10)\nprint('bye')", None,
         "ranks 0-2: hello\nrank 0: 0\nrank 1: 10\nrank 2: 20\nranks 0-2: bye\n"),
        ("print('here')", [2, 0], "ranks 0,2: here\n"),
        ("x = 6\nx * 7", None, "ranks 0-2: 42\n"),
        # Of a progress bar one line.
        ("for i in range(3000): print(i, end='\\r', flush=i % 100 == 0)\nprint('done')", None,
         "ranks 0-2: done\n"),
    ):  # fmt: skip
        cluster.run(cell, ranks)
        assert capsys.readouterr() == (shown, "")
    cluster.run("import sys\nprint('warned', file=sys.stderr)")
    assert capsys.readouterr() == ("", "ranks 0-2: warned\n")


def test_output_streams_while_the_cell_runs(cluster, tmp_path):
    seen = tmp_path / "seen"
    lines: list[str] = []

    class Watch:
        def write(self, text: str) -> None:
            lines.append(text)
            seen.touch()  # the cell ends only after its first line has arrived here

        def flush(self) -> None:
            pass

    cell = f"""
        import pathlib, time
        print('first', flush=True)
        begin = time.monotonic()
        while not pathlib.Path({str(seen)!r}).exists():
            assert time.monotonic() - begin < 20
            time.sleep(0.01)
        print('second')
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", Watch())
        cluster.run("if True:" + cell)
    assert "".join(lines) == "ranks 0-2: first\nranks 0-2: second\n"


def test_much_output_stays_linear(cluster, capsys):
    cluster.run("for i in range(20000): print('line', i)")
    lines = capsys.readouterr().out.splitlines()
    numbers = [line.split()[-1] for line in lines]
    assert len(lines) <= 3 * 20000
    assert sorted(set(numbers), key=int) == [str(i) for i in range(20000)]


def test_no_answer_is_lost_behind_much_output(cluster):
    for _ in range(8):
        cluster.run("for i in range(5000): print('line', i)")
        for _ in range(10):
            cluster.run("")


def test_an_empty_cell_takes_less_than_a_fifth_of_a_second(cluster):
    cluster.run("")
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        cluster.run("")
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.2


def test_an_exception_on_one_rank_frees_the_others_from_a_barrier(cluster, capsys):
    begin = time.monotonic()
    with pytest.raises(RankError) as raised:
        cluster.run(RANK + "if rank == 1: raise ValueError('bad shard')\ncomm.world().barrier()")
    assert time.monotonic() - begin < 3
    assert str(raised.value) == "rank 1: ValueError: bad shard"
    shown = "\n".join(raised.value._render_traceback_())
    assert "bad shard" in shown and "ranks 0,2: freed from waiting" in shown
    assert "tnt_notebook/" not in shown  # the cell's frames, and none of ours
    cluster.run(
        "comm.world().barrier()\nprint(comm.world().allreduce(__import__('numpy').ones(1)))"
    )
    assert capsys.readouterr().out == "ranks 0-2: [3.]\n"


def test_ranks_that_are_not_there_and_cells_that_raise_leave_the_cluster_usable(cluster, capsys):
    with pytest.raises(ClusterError, match="ranks 0 to 2, and not rank 3"):
        cluster.run("", [1, 3])
    with pytest.raises(RankError, match="rank 2: ZeroDivisionError"):
        cluster.run("1 / 0", [2])
    with pytest.raises(RankError, match="ranks 0-2: SyntaxError"):  # told once
        cluster.run("def f(:")
    cluster.run(RANK + "comm.world().barrier()\nprint('fine')")
    assert capsys.readouterr().out == "ranks 0-2: fine\n"


def test_interrupt_reaches_the_ranks(cluster):
    cell = f"""
import os, signal, time
comm.world().barrier()
try:
    if rank == 0: os.kill({os.getpid()}, signal.SIGINT)  # as a person who sees that it has begun
    time.sleep(60)
finally:
    stopped = True
"""
    with pytest.raises(RankError, match="KeyboardInterrupt"):
        cluster.run(RANK + cell)
    assert cluster.pull("stopped", rank=2) is True
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_variables_travel_both_ways(cluster):
    array = np.arange(6.0).reshape(2, 3)
    cluster.push({"a": array, "b": {"c": [1, None, "x"]}})
    cluster.run(RANK + "d = (a + rank, b['c'][0])")
    for rank in range(3):
        moved, one = cluster.pull("d", rank)
        np.testing.assert_array_equal(moved, array + rank)
        assert one == 1


def test_what_cannot_travel_is_named(cluster):
    with pytest.raises(ClusterError, match="'lock' is of type lock, which cannot be sent"):
        cluster.push({"fine": 1, "lock": threading.Lock()})
    cluster.run("g = (i for i in [])")
    with pytest.raises(ClusterError, match="rank 1: 'g' is of type generator, which cannot"):
        cluster.pull("g", rank=1)
    with pytest.raises(ClusterError, match="rank 0: 'unheard_of' is not defined"):
        cluster.pull("unheard_of")


def test_a_busy_rank_shows_busy(cluster, tmp_path):
    begun, end = tmp_path / "begun", tmp_path / "end"
    cell = f"""
import pathlib, time
pathlib.Path({str(begun)!r}).touch()
deadline = time.monotonic() + 20
while not pathlib.Path({str(end)!r}).exists() and time.monotonic() < deadline: time.sleep(0.01)
"""
    assert {row.state for row in cluster.status()} == {"idle"}
    runner = threading.Thread(target=cluster.run, args=(cell, [1]))
    runner.start()
    eventually(begun.exists)
    assert [row.state for row in cluster.status()] == ["idle", "busy", "idle"]
    end.touch()
    runner.join()
    assert {row.state for row in cluster.status()} == {"idle"}


def test_logs_keep_prints_and_what_child_processes_write(cluster):
    cluster.run("import os\nprint('printed')\nos.system('echo from a child')", [1])
    assert "printed" in cluster.logs(1) and "from a child" in cluster.logs(1)
    assert "from a child" not in cluster.logs(2)


def test_ranks_blocked_in_plain_mpi_are_freed_by_a_restart(pair, capsys, impatient):
    begin = time.monotonic()
    with pytest.raises(ClusterError, match="variables on all ranks are lost") as raised:
        pair.run(
            RANK + "from mpi4py import MPI\n"
            "if rank == 1: raise ValueError('bad')\nMPI.COMM_WORLD.Barrier()"
        )
    assert time.monotonic() - begin < 30
    assert "rank 1: ValueError: bad" in str(raised.value)
    where = str(raised.value).split("Rank 0 was here:")[1]
    assert "<module>" in where.splitlines()[1] and "run_code" in where, where
    pair.run("print('again')")
    assert capsys.readouterr().out.splitlines() == [
        "restarting the engines: rank 0 cannot be freed",
        "ranks 0-1: again",
    ]
