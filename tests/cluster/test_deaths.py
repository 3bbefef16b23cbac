"""Ranks that die: the others live, and a fit goes on or ends, as it was asked to."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen

import psutil
import pytest

from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.life.recovery import start_missing
from tnt_notebook.cluster.requests.execution import Execution
from tnt_notebook.errors import ClusterError, DeathError
from tnt_notebook.protocol import Call
from tnt_notebook.telemetry import archive
from tnt_notebook.telemetry.kept_ribbon import ribbon_of
from tnt_notebook.telemetry.run_reader import read

CELL = """
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        import time; time.sleep({pause})
model.fit(x, x.sum(1, keepdims=True), batch_size=64, epochs={epochs}, callbacks=[Slow()])
"""


@pytest.fixture
def memory_limit() -> Iterator[Callable[..., None]]:
    """Gives a process, and the one above it if asked to, a control group of their own, with so many
    bytes more than they have now."""
    folder, limit = control_group()

    def limited(pid: int, size: int, above: bool) -> None:
        (folder / limit).write_text(str(size))
        for member in (psutil.Process(pid).ppid(), pid) if above else (pid,):
            (folder / "cgroup.procs").write_text(str(member))

    yield limited
    eventually(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def control_group() -> tuple[Path, str]:
    """A new one, and its file for the limit of memory; skips the test where there can be none."""
    own = Path("/proc/self/cgroup").read_text()
    for pattern, root, limit in (
        (r"^\d+:(?:.*,)?memory(?:,.*)?:/(.*)$", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        (r"^0::/(.*)$", "/sys/fs/cgroup", "memory.max"),
    ):
        if found := re.search(pattern, own, re.MULTILINE):
            for parent in (Path(root, found[1]), Path(root)):
                folder = parent / f"tnt-test-{os.getpid()}"
                try:
                    folder.mkdir()
                except OSError:
                    continue
                if (folder / limit).exists():
                    return folder, limit
                folder.rmdir()
    pytest.skip("this machine does not allow it: control groups for memory cannot be made")


def kill(cluster: Cluster, rank: int) -> None:
    os.kill(cluster.status()[rank].pid, signal.SIGKILL)


def test_the_others_live_and_go_on_with_cells_and_fits(cluster, capsys):
    cluster.run("from tnt_notebook import comm; mine = comm.rank() * 10")
    fit = cluster.fit(CELL.format(epochs=100_000, pause=0), {})
    eventually(lambda: fit.frames)
    begin = time.monotonic()
    kill(cluster, 1)
    signal_9 = r"rank 1 died on \S+ \(SIGKILL, signal 9: often out of memory\). ranks 0,2 live"
    with pytest.raises(DeathError, match=signal_9) as raised:
        fit.wait(300)
    assert ".cc:" not in str(raised.value)  # TensorFlow's banner
    assert time.monotonic() - begin < 20 and raised.value.ranks == [1]
    assert [row.state for row in cluster.status()] == ["idle", "dead", "idle"]
    capsys.readouterr()
    cluster.run("print(mine, comm.rank(), comm.world().size)", report=print)
    where = "on ranks 0,2 only: rank 1 has died (%tnt_cluster restart --missing starts it again)"
    assert capsys.readouterr().out == f"{where}\nrank 0: 0 0 2\nrank 2: 20 1 2\n"
    with pytest.raises(ClusterError, match="rank 1 died. %tnt_cluster restart --missing"):
        cluster.run("1", [1])
    assert cluster.fit(CELL.format(epochs=1, pause=0), {}).wait(300).state == "finished"

    start_missing(cluster)
    assert [row.state for row in cluster.status()] == ["idle"] * 3
    cluster.run("from tnt_notebook import comm; print(comm.rank(), comm.world().size)")
    assert cluster.pull("mine", 2) == 20
    with pytest.raises(ClusterError, match="'mine' is not defined"):
        cluster.pull("mine", 1)
    assert cluster.fit(CELL.format(epochs=1, pause=0), {}).wait(300).state == "finished"


def test_a_model_of_before_trains_on_the_others(cluster, capsys):
    make = """
import keras, numpy as np, tnt_notebook as tnt
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(120, 8)).astype("float32")
model = tnt.Model(keras.Sequential([keras.layers.Dense(1)]))
model.compile("adam", "mse")
"""
    fit = """
y = x.sum(1, keepdims=True)
print(*model.fit(x, y, batch_size=30, epochs=2, shuffle=False, verbose=0).history["loss"])
"""
    cluster.run(make + fit + "w = model.get_weights()")
    kill(cluster, 1)
    eventually(lambda: cluster.missing() == [1])
    cluster.run(fit)
    alone = "model = model.keras_model; model.set_weights(w); model.compile('adam', 'mse')"
    cluster.run("model.set_weights(w); model.compile('adam', 'mse')" + fit)
    cluster.run(alone + fit)
    _, _, losses, expected = capsys.readouterr().out.splitlines()
    assert losses.startswith("ranks 0,2: ")
    numbers = [[float(word) for word in line.split()[2:]] for line in (losses, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)
    start_missing(cluster)


def test_a_rank_that_dies_ends_the_cell_and_is_named(cluster, capsys):
    cell = """
import os, signal
from tnt_notebook import comm
print('last words', flush=True)
if comm.rank() == 2:
    os.kill(os.getpid(), signal.SIGKILL)
comm.world().barrier()
"""
    # Where ranks were replaced before, Open MPI's daemon may end with the next one that dies.
    cluster.restart()
    with pytest.raises(ClusterError, match="(?s)rank 2 died.*restart.*last words"):
        cluster.run(cell)
    assert cluster.status()[2].state == "dead"
    capsys.readouterr()
    cluster.run("print('still here')")
    assert capsys.readouterr().out == "ranks 0-1: still here\n"
    kill(cluster, 1)  # at rest
    eventually(lambda: cluster.status()[1].state == "dead")
    eventually(lambda: 1 in cluster.missing())
    cluster.restart()
    cluster.run("print('again')")
    assert capsys.readouterr().out == "ranks 0-2: again\n"


@pytest.mark.parametrize(
    ("one", "two", "how"),
    [
        ("os._exit(3)", "os.kill(os.getpid(), signal.SIGTERM)", ("exit status 3", "SIGTERM")),
        ("quit()", "MPI.COMM_WORLD.Abort(7)", ("exit status 0", "exit status 7")),
        *(
            pytest.param(*ways, marks=pytest.mark.thorough)
            for ways in (
                ("os._exit(0)", "os.abort()", ("exit status 0", "SIGABRT")),
                (
                    "ctypes.string_at(0)",
                    "os.execv('/bin/false', ['false'])",
                    ("SIGSEGV", "exit status 1"),
                ),
                (
                    "threading.Thread(target=os._exit, args=[4]).start(); time.sleep(60)",
                    "os.execv('/bin/sleep', ['sleep', '60'])",
                    ("exit status 4", "SIGKILL, signal 9: often out of memory"),
                ),
                (
                    "psutil.Process().parent().kill(); time.sleep(60)",
                    "atexit.register(os._exit, 5); quit()",
                    ("the process above it was killed", "exit status 5"),
                ),
            )
        ),
    ],
)
def test_however_ranks_end_all_are_named_and_the_others_go_on(cluster, one, two, how):
    cell = f"""
import atexit, ctypes, os, psutil, signal, threading, time
from mpi4py import MPI
from tnt_notebook import comm
if comm.rank() == 1:
    {one}
elif comm.rank() == 2:
    {two}
else:
    comm.world().barrier()
"""
    pids, begin = {row.rank: row.pid for row in cluster.status()}, time.monotonic()
    with pytest.raises(DeathError) as died:
        cluster.run(cell)
    assert time.monotonic() - begin < 20
    host = os.uname().nodename
    if died.value.ranks == [1, 2]:
        assert f"ranks 1-2 died on {host} ({', '.join(how)}). rank 0 lives" in str(died.value)
    else:  # one takes its time to quit: the next cell names it
        first = died.value.ranks[0]
        eventually(lambda: not psutil.pid_exists(pids[3 - first]))
        with pytest.raises(DeathError) as late:
            cluster.run("1")
        for error in (died.value, late.value):
            end = how[error.ranks[0] - 1]
            assert f"rank {error.ranks[0]} died on {host} ({end}). rank" in str(error)
        assert late.value.ranks == [3 - first]
    cluster.run("assert comm.world().size == 1")
    start_missing(cluster)
    cluster.run("from tnt_notebook import comm; comm.world().barrier()")


def test_a_rank_that_dies_just_before_it_is_asked_is_named_in_a_sentence(cluster):
    named = pytest.raises(DeathError, match=r"rank 1 died on .*SIGKILL.* ranks 0,2 live")
    with named, cluster.queue.turn() as engines:
        kill(cluster, 1)
        eventually(lambda: 1 not in engines.client.ids)
        Execution(engines, [0, 1, 2]).call(Call.MACHINE)
    start_missing(cluster)
    cluster.run("from tnt_notebook import comm; comm.world().barrier()")


def test_a_rank_that_dies_at_start_is_named_at_once(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("""
import os
if os.environ.get("OMPI_COMM_WORLD_RANK") == "1":
    os.register_at_fork(after_in_child=lambda: os._exit(3))
""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    begin = time.monotonic()
    with pytest.raises(ClusterError, match=r"rank 1 ended while starting \(exit status 3\)"):
        Cluster(2)
    assert time.monotonic() - begin < 20


def test_a_child_that_begins_mpi_is_no_rank(pair, capsys):
    child = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    pair.run(f"""
import subprocess, sys
from tnt_notebook import comm
done = subprocess.run([sys.executable, "-c", {child!r}], capture_output=True, text=True)
comm.world().barrier()
print(done.stdout.strip())
""")
    # In one line or in two: children need their time, on a busy machine.
    out = capsys.readouterr().out.splitlines()
    assert sorted(out) in (["ranks 0-1: 1"], ["rank 0: 1", "rank 1: 1"])


def test_rank_0_dies_and_then_its_successor(cluster):
    cluster.run("mine = __import__('tnt_notebook').comm.rank()")
    sums = """
import numpy as np
from tnt_notebook import comm
while True:
    comm.world().allreduce(np.ones(1000))
"""
    for _ in range(2):
        with ThreadPoolExecutor() as threads:
            running = threads.submit(cluster.run, sums)
            eventually(lambda: {row.state for row in cluster.status()} == {"busy"})
            kill(cluster, 0)
            with pytest.raises(DeathError, match="rank 0 died on "):
                running.result(60)
        start_missing(cluster)
        cluster.run("from tnt_notebook import comm")
        cluster.run("all_ = comm.world().gather_numbers(comm.rank())")
        assert [cluster.pull("all_", rank) for rank in range(3)] == [[0, 1, 2]] * 3
        assert cluster.pull("mine", 1) == 1


def test_a_rank_that_hangs_is_named_after_the_time_that_was_said(pair, impatient, tmp_path, capsys):
    # Longer than a rank is ever kept waiting by a disk and by what else this machine does.
    timeout = 10.0
    checkpoint = {"folder": str(tmp_path), "every_steps": 100}
    fit = pair.fit(
        CELL.format(epochs=100_000, pause=0), {"timeout": timeout, "checkpoint": checkpoint},
        on_failure="restart", restarts=1,
    )  # fmt: skip
    for attempt in range(2):
        eventually(lambda: fit.frames and any(tmp_path.iterdir()))
        os.kill(pair.status()[1].pid, signal.SIGSTOP)
        if attempt == 0:  # it goes on by itself
            eventually(lambda: "all ranks were started again, from" in capsys.readouterr().out)
    with pytest.raises(ClusterError, match="waited 10 s for rank 1") as raised:
        fit.wait(300)
    assert "Rank 1 was here:\n(it did not say: it is stopped" in str(raised.value)
    pair.run("1")


def test_a_fit_goes_on_and_its_result_is_that_of_an_undisturbed_one(cluster, tmp_path, capsys):
    whole = cluster.fit(CELL.format(epochs=6, pause=0), {}).wait(300).history["loss"]
    in_memory, on_disk = {"folder": None, "in_memory": True}, {"folder": str(tmp_path)}
    for on_failure, victim, checkpoint, exchange, how, living in (
        ("shrink", 0, in_memory, "allreduce", "going on with ranks 1-2", [1, 2]),
        # Each rank has a part of the optimizer's state.
        ("restart", 2, on_disk, "sharded:small_kb=0", "rank 2 was started again", [0, 1, 2]),
    ):
        options = {"checkpoint": {**checkpoint, "every_steps": 5}, "exchange": exchange}
        fit = cluster.fit(
            CELL.format(epochs=6, pause=0.05), options, on_failure=on_failure, restarts=1
        )
        eventually(lambda fit=fit: len(fit.history.get("loss", [])) >= 2)
        kill(cluster, victim)
        fit.wait(300)
        assert fit.state == "finished"
        assert fit.history["loss"] == pytest.approx(whole, rel=1e-4)
        end = "(SIGKILL, signal 9: often out of memory)"
        said = f"rank {victim} died on {os.uname().nodename} {end}: {how}"
        assert said in capsys.readouterr().out
        assert cluster.living == living
        ribbon = fit._view._ribbon.ranks  # one for all of it: that rank is dead in it, others go on
        assert "d" in ribbon[victim].doing and "r" in ribbon[living[0]].doing
        assert all("t" in ribbon[rank].doing.partition("r")[2] for rank in living if rank != victim)
        first, second = archive.listed()[-2:]  # the tries, as they are kept
        assert ribbon_of(read(first.folder), first.known).ranks[victim].doing.endswith("d")
        assert ribbon_of(read(second.folder), second.known).ranks[living[0]].doing.startswith("r")
        assert fit.model_bytes().startswith(b"PK")
        if on_failure == "shrink":
            start_missing(cluster)


def test_a_rank_without_memory_is_named_with_the_reason(pair, memory_limit):
    memory_limit(pair.status()[1].pid, 100_000_000, above=True)
    begin = time.monotonic()
    with pytest.raises(DeathError, match=r"rank 1 died on .*: probably for lack of memory") as said:
        pair.run("from tnt_notebook import comm\nif comm.rank() == 1: x = b'1' * 400_000_000")
    assert time.monotonic() - begin < 20
    assert "SIGKILL. 1 was killed there for lack of memory just then." in str(said.value)
    assert "Smaller batches" in str(said.value)
    start_missing(pair)


def test_a_kill_is_counted_that_was_seen_at_once_in_a_new_control_group(memory_limit):
    code = """
from subprocess import run
import sys
from tnt_notebook.engine.nanny import _KilledForMemory
killed = _KilledForMemory()
input("ready\\n")
assert run([sys.executable, "-c", "x = b'1' * 200_000_000"]).returncode == -9
killed.look()
print(killed.lately())
"""
    python = Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True)
    assert python.stdout is not None and python.stdout.readline() == "ready\n"
    memory_limit(python.pid, 50_000_000, above=False)
    assert python.communicate("\n", timeout=180)[0] == "1\n"
