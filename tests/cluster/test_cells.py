"""Cells on real ranks: output, errors, interrupts, variables."""

import os
import re
import signal
import threading
import time
from itertools import combinations

import ml_dtypes
import numpy as np
import pytest

from tests.support.waiting import eventually
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.errors import ClusterError, RankError
from tnt_notebook.protocol import Call

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
    cluster.run("for i in range(10000): print('line', i)")
    lines = capsys.readouterr().out.splitlines()
    numbers = [line.split()[-1] for line in lines]
    assert len(lines) <= 3 * 10000
    assert sorted(set(numbers), key=int) == [str(i) for i in range(10000)]


REST = r"ranks? [\d,-]+: \[4[67][.\d]* MB are not shown here; .*: %tnt_cluster logs\]"


@pytest.mark.parametrize(
    ("prints", "said"),
    [
        ("print('x' * 50_000_000)", REST),
        ("for i in range(500): print('x' * 99_999)", REST),
        ("import sys\nsys.stderr.write('x' * 50_000_000), None", REST),
        ("print('\\n' * 50_000_000)", REST),
        ("print('x' * 50_000_000)\nprint('the end')", r"\nranks? [\d,-]+: the end"),
        ("'x' * 50_000_000", r"\[text/plain of 47.68 MB is not shown here\]"),
        (
            "from IPython.display import HTML\nHTML('x' * 50_000_000)",
            "text/html of 47.68 MB is not",
        ),
        ("raise ValueError('x' * 50_000_000)", "ranks 0-2: ValueError: xxx"),
    ],
)
def test_what_is_too_much_to_show_is_cut_and_says_so(cluster, capsys, prints, said):
    try:
        cluster.run(prints)
        shown = "".join(capsys.readouterr())
    except RankError as error:
        shown = "\n".join([*(error.rendered or []), str(error)])
    assert re.search(said, shown), shown[-300:]
    assert len(shown) < 1_200_000
    cluster.run("print('next')")
    assert capsys.readouterr().out == "ranks 0-2: next\n"


def test_an_interrupt_while_an_error_is_being_told_loses_no_answer(cluster, capsys):
    cell = """
import os, signal, sys
class Said(Exception):
    def __str__(self):
        if sys._getframe(1).f_code.co_name == "do_execute":  # the kernel's, which makes the reply
            os.kill(os.getpid(), signal.SIGINT)
        return "said"
raise Said
"""
    begin = time.monotonic()
    with pytest.raises(RankError, match="ranks 0-2: KeyboardInterrupt"):
        cluster.run(cell)
    assert time.monotonic() - begin < 20  # or they were waited for until they were given up
    cluster.run("print('next')")
    assert capsys.readouterr().out == "ranks 0-2: next\n"


def test_no_answer_is_lost_behind_much_output(cluster):
    for _ in range(8):
        cluster.run("for i in range(5000): print('line', i)")
        for _ in range(10):
            cluster.run("")


def test_an_exception_on_one_rank_frees_the_others_from_a_barrier(cluster, capsys):
    with pytest.raises(RankError) as raised:
        cluster.run(RANK + "if rank == 1: raise ValueError('bad shard')\ncomm.world().barrier()")
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


@pytest.mark.parametrize(
    "wait",
    [
        "time.sleep(60)",
        "await asyncio.sleep(60)",
        "await asyncio.gather(asyncio.sleep(60), asyncio.sleep(50))",
        "await asyncio.sleep(0); time.sleep(60)",
    ],
)
def test_interrupt_reaches_the_ranks(cluster, wait):
    cell = f"""
import asyncio, os, signal, time
try:
    comm.world().barrier()
    if rank == 0: os.kill({os.getpid()}, signal.SIGINT)  # as a person who sees that it has begun
    {wait}
finally:
    stopped = True
"""
    with pytest.raises(RankError, match="ranks 0-2: KeyboardInterrupt"):
        cluster.run(RANK + cell)
    assert cluster.pull("stopped", rank=2) is True
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_cells_await_as_in_a_notebook(cluster, capsys):
    cluster.run("""
import asyncio
async def count():
    for i in range(2):
        await asyncio.sleep(0.01)
        yield i
async with asyncio.timeout(20):
    async for i in count(): print(i)
later = asyncio.create_task(asyncio.sleep(0.01, "slept"))
""")
    cluster.run(RANK + "print(await later)\ncomm.world().barrier()\n[i async for i in count()]")
    with pytest.raises(RankError, match="rank 1: ZeroDivisionError"):
        cluster.run("await asyncio.sleep(0)\n1 / (rank - 1)\ncomm.world().barrier()")
    cluster.run("print('next')")
    assert capsys.readouterr().out == (
        "ranks 0-2: 0\nranks 0-2: 1\nranks 0-2: slept\nranks 0-2: [0, 1]\nranks 0-2: next\n"
    )


@pytest.mark.parametrize("asks", ["input('name? ')", "import getpass; getpass.getpass()"])
def test_what_would_ask_a_person_is_refused_with_a_way_out(cluster, asks):
    with pytest.raises(RankError, match="NoInputError: A rank has no keyboard.*%tnt_push answer"):
        cluster.run(asks)


@pytest.mark.parametrize(
    ("reads", "shown"),
    [
        ("import sys; sys.stdin.read()", "''"),
        ("import subprocess; subprocess.run(['cat']).returncode", "0"),
        ("text = 'empty'\n!cat; echo {text}", "empty"),
    ],
)
def test_ranks_and_what_they_start_read_nothing(cluster, capsys, reads, shown):
    cluster.run(reads)
    # On a busy machine programs of ranks end at different times, and so their outputs are shown.
    label_of = {ranks_label(s): s for n in (1, 2, 3) for s in combinations(range(3), n)}
    lines = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert {text for _, text in lines} == {shown}
    assert sorted(rank for label, _ in lines for rank in label_of[label]) == [0, 1, 2]


def test_variables_travel_both_ways(cluster):
    array = np.arange(6.0).reshape(2, 3)
    cluster.push({"a": array, "b": {"c": [1, None, "x"]}})
    cluster.run(RANK + "d = (a + rank, b['c'][0])")
    for rank in range(3):
        moved, one = cluster.pull("d", rank)
        np.testing.assert_array_equal(moved, array + rank)
        assert one == 1


def test_dtypes_that_numpy_does_not_know_travel_whole(cluster):
    sent = {name: np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
            for name in ("bfloat16", "float8_e4m3fn", "int4")}  # fmt: skip
    cluster.push({"of": sent, "one": sent["bfloat16"][:, 1]})
    cluster.run(
        "assert str(one.dtype) == 'bfloat16', one\nback = {n: a + a for n, a in of.items()}"
    )
    for name, array in cluster.pull("back", 1).items():
        assert array.dtype == sent[name].dtype and (array == sent[name] + sent[name]).all()


def test_instances_of_classes_that_the_other_side_lacks_are_named(cluster, monkeypatch):
    import __main__

    here = type("OfNotebook", (), {"__module__": "__main__"})
    monkeypatch.setattr(__main__, "OfNotebook", here, raising=False)
    with pytest.raises(ClusterError, match="do not know OfNotebook, which this notebook has def"):
        cluster.push({"one": here()})
    cluster.run("class OfRanks: pass\none = OfRanks()")
    with pytest.raises(ClusterError, match="'one' of rank 2 has a type that this notebook does"):
        cluster.pull("one", 2)
    cluster.run("class OfNotebook: pass")
    cluster.push({"one": here()})


def test_our_own_errors_are_a_sentence_and_the_persons_own_lines(cluster):
    cell = """
from tnt_notebook.errors import ModelError
def build():
    raise ModelError("It cannot be trained. Do this.")
build()
"""
    with pytest.raises(RankError) as raised:
        cluster.run(cell)
    assert raised.value._render_traceback_() == [
        "ranks 0-2:",
        "line 4 of the cell: build()",
        'line 3 of build in the cell: raise ModelError("It cannot be trained. Do this.")',
        "RankError: ranks 0-2: ModelError: It cannot be trained. Do this.",
    ]


def test_calls_are_told_without_a_look_into_sources_which_takes_seconds(cluster):
    with pytest.raises(RankError, match="TypeError") as raised:
        cluster.ask(Call.MODEL)
    label, head, *calls = raised.value.rendered
    assert (label, head) == ("rank 0:", "Traceback (most recent call last):")
    assert calls[-1] == '  File "<string>", line 1, in <module>'


def test_what_cannot_travel_is_named(cluster):
    with pytest.raises(ClusterError, match="'lock' is of type lock, which cannot be sent"):
        cluster.push({"fine": 1, "lock": threading.Lock()})
    cluster.run("g = (i for i in [])")
    with pytest.raises(ClusterError, match="rank 1: 'g' is of type generator, which cannot"):
        cluster.pull("g", rank=1)
    with pytest.raises(ClusterError, match="rank 0: 'unheard_of' is not defined"):
        cluster.pull("unheard_of")


def test_what_threads_and_tasks_print_after_their_cell_is_shown(cluster, capsys):
    cluster.run(
        """
import asyncio, threading, time
def late():
    time.sleep(0.1)
    print("a thread", flush=True)
async def later():
    while thread.is_alive():  # or one prints into the line of the other
        await asyncio.sleep(0.01)
    print("a task", flush=True)
    print("unfinished", end="", flush=True)
thread = threading.Thread(target=late)
task = asyncio.create_task(later())
thread.start()
""",
        [1],
    )
    shown = []

    def seen(*texts: str) -> bool:
        shown.append(capsys.readouterr().out)
        return all(f"rank 1: {text}\n" in "".join(shown) for text in texts)

    eventually(lambda: seen("a thread", "a task", "unfinished"))


def test_a_busy_rank_shows_busy(cluster, tmp_path):
    begun, end = tmp_path / "begun", tmp_path / "end"
    cell = f"""
import pathlib, time
pathlib.Path({str(begun)!r}).touch()
deadline = time.monotonic() + 120
while not pathlib.Path({str(end)!r}).exists() and time.monotonic() < deadline: time.sleep(0.01)
"""
    assert {row.state for row in cluster.status()} == {"idle"}
    runner = threading.Thread(target=cluster.run, args=(cell, [1]))
    runner.start()
    eventually(begun.exists)
    eventually(lambda: [row.state for row in cluster.status()] == ["idle", "busy", "idle"])
    end.touch()
    runner.join()
    assert {row.state for row in cluster.status()} == {"idle"}


def test_logs_keep_prints_and_what_child_processes_write(cluster):
    cluster.run("import os\nprint('printed')\nos.system('echo from a child')", [1])
    assert "printed" in cluster.logs(1) and "from a child" in cluster.logs(1)
    assert "from a child" not in cluster.logs(2)


def test_the_banner_of_tensorflow_is_in_the_files_of_logs_alone(cluster, capsys):
    cluster.run("import sys\n!{sys.executable} -c 'import tensorflow'; echo the end", [1])
    assert capsys.readouterr().out == "rank 1: the end\n"
    assert "the end" in cluster.logs(1) and ".cc:" not in cluster.logs(1)
    banner = cluster.folder.rank_log(1).read_text()
    assert re.search(r"\.cc:\d+\]", banner)  # its lines depend on the CPU


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


#: The kernel is interrupted once more, by code that is not the cell's, while it tells of an error.
TWICE = """
import signal
from IPython import get_ipython
space = {"shell": get_ipython(), "told": get_ipython().showtraceback, "signal": signal}
exec('''
def showtraceback(*given, **how):
    shell.showtraceback = told
    signal.raise_signal(signal.SIGINT)
    return told(*given, **how)
shell.showtraceback = showtraceback
''', space)
class Interrupting:
    def __reduce__(self):
        signal.raise_signal(signal.SIGINT)
value = Interrupting()
"""


def test_a_second_interrupt_does_not_end_what_tells_of_the_first(pair, capsys):
    pair.run(TWICE)
    with pytest.raises(RankError, match="KeyboardInterrupt") as raised:
        pair.pull("value")
    assert "__reduce__" in "".join(raised.value._render_traceback_())
    assert "Traceback" not in capsys.readouterr().out


#: An operation of TensorFlow fails as its rank is interrupted: Python hears of that while the error
#: of the operation is made.
WHILE_IT_FAILS = """
import os, signal
import tensorflow as tf
def fails(value):
    os.kill(os.getpid(), signal.SIGINT)
    raise ValueError
operation = tf.function(lambda: tf.py_function(fails, [0.0], tf.float32))
"""


@pytest.mark.parametrize("waits", ["", "import asyncio\nawait asyncio.sleep(0)\n"])
def test_an_interrupt_that_comes_as_an_operation_fails_is_one(pair, waits):
    pair.run(WHILE_IT_FAILS)
    with pytest.raises(RankError) as raised:
        pair.run(waits + "operation()")
    assert raised.value.interrupted
    assert "operation()" in "".join(raised.value._render_traceback_())
    with pytest.raises(RankError) as raised:  # whoever catches the error is interrupted after it
        pair.run("import time\ntry:\n    operation()\nexcept Exception:\n    time.sleep(60)")
    assert raised.value.interrupted


def test_code_that_catches_an_interrupt_hears_the_next_one(pair):
    pair.run("""
import signal
caught = 0
for _ in range(3):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        caught += 1
assert caught == 3
""")
