"""A second user of the same host can read, write, connect to and end nothing of a cluster."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cells import TRAIN
from tests.support.shared_host import SharedHost

STRANGER = Path(__file__).with_name("stranger.py")
#: Of alice: trains, says what there is, and in the end how that went.
TRAINS = """
import json, os, socket, sys, time
from pathlib import Path
import psutil
from tnt_notebook.cluster import Cluster
from tnt_notebook.warden import processes_of

cluster = Cluster(2)
fit = cluster.fit(sys.argv[1], {}, "secret run")
while not fit.frames:
    time.sleep(0.05)
pids = processes_of(cluster.id)
ports = {
    (c.laddr.ip, c.laddr.port): psutil.Process(pid).name()
    for pid in pids
    for c in psutil.Process(pid).net_connections()
    if c.status == psutil.CONN_LISTEN
}
runs = Path(os.environ["TNT_RUNS_DIR"])
folders = [cluster.folder.path, cluster.folder.segments, *runs.iterdir()]
found = [str(path) for folder in folders for path in (folder, *folder.rglob("*"))]
security = cluster.folder.profile / "security" / f"ipcontroller-{cluster.id}-engine.json"
said = json.loads(security.read_text())
daemon = next(p for p in map(psutil.Process, pids) if p.name() == "prterun")
libpmix = next(m.path for m in daemon.memory_maps() if "libpmix.so" in m.path)
print(json.dumps({
    "pids": pids, "ports": [[*place, name] for place, name in ports.items()], "files": found,
    "secrets": [said["key"], *(v for k, v in said.items() if k.startswith("curve_"))],
    "curve_publickey": said["curve_serverkey"], "libpmix": libpmix,
    "daemon": f"prterun-{socket.gethostname()}-{daemon.pid}",
}), flush=True)
sys.stdin.readline()
before = len(fit.frames)
while len(fit.frames) == before:
    time.sleep(0.05)
print(json.dumps({"dead": cluster._alive().dead(), "engines": len(cluster._alive().client.ids)}))
fit.stop()
print(json.dumps({"state": fit.wait(300).state}), flush=True)
cluster.stop()
"""


@pytest.fixture(scope="module")
def target(host: SharedHost) -> Iterator[dict[str, Any]]:
    """What there is of alice's cluster, while it trains; in the end it has noticed nothing."""
    runs = host.home("alice") / "runs"
    environment = {**host.environment("alice"), "TNT_RUNS_DIR": str(runs)}
    with host.popen(
        [sys.executable, "-c", TRAINS, TRAIN.format(epochs=1_000_000)], "alice",
        env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as owner:  # fmt: skip
        try:
            line = next((line for line in owner.stdout if line.startswith("{")), "")
            assert line, owner.stderr.read()
            yield json.loads(line)
            said, errors = owner.communicate("end\n", timeout=180)
        finally:
            owner.kill()
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert lines == [{"dead": [], "engines": 2}, {"state": "stopped"}], said + errors


def attempt(host: SharedHost, what: str, target: dict, user: str = "bob", *before: str) -> list:
    """What of an attempt has succeeded."""
    target = {**target, "ports": [place[:2] for place in target["ports"]]}
    run = host.run(
        [*before, sys.executable, str(STRANGER), what], user,
        input=json.dumps(target), capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert run.stdout, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_files_and_shared_memory(host, target):
    assert {"warden", "rank-0.log", "frames"} & {Path(f).stem for f in target["files"]}
    assert sum("security" in path for path in target["files"]) > 3
    assert attempt(host, "files", target) == []


def test_processes(host, target):
    assert len(target["pids"]) > 10
    assert attempt(host, "processes", target) == []


def test_no_secret_is_in_an_argument_or_a_log(host, target):
    assert len(target["secrets"]) == 2 and all(len(s) >= 32 for s in target["secrets"])
    look = ["sh", "-c", "cat /proc/[0-9]*/cmdline 2> /dev/null; true"]
    arguments = host.run(look, capture_output=True, encoding="latin-1").stdout
    assert "tnt_notebook.engine" in arguments
    logs = [path for path in target["files"] if path.endswith(".log")]
    written = host.run(["cat", *logs], capture_output=True, text=True).stdout
    assert [s for s in target["secrets"] if s in arguments or s in written] == []


def test_only_the_loopback_listens(target):
    names = {name for _, _, name in target["ports"]}
    assert "prterun" in names and len(target["ports"]) > 10
    assert [p for p in target["ports"] if p[0] not in ("127.0.0.1", "::1")] == []


def test_ports_of_zeromq_want_the_key(host, target):
    own = [text for text in attempt(host, "messages", target, "alice") if "greeted" in text]
    assert own, "the attempt works for one who knows the public key"
    unknowing = {k: v for k, v in target.items() if k != "curve_publickey"}
    assert attempt(host, "messages", unknowing) == []


def test_ports_answer_nobody(host, target):
    assert attempt(host, "texts", target) == []


def test_nobody_becomes_a_tool_of_open_mpi(host, target):
    alices = ["unshare", "--user", f"--map-user={host.uids['alice']}"]  # or so it says
    allowed = host.run([*alices, "true"], "bob", capture_output=True, text=True)
    joined = []
    for _, port, name in target["ports"]:
        if name == "prterun":
            place = {**target, "daemon": [target["daemon"], port]}
            joined += attempt(host, "programs", place, "alice")
            assert attempt(host, "programs", place) == []
            if allowed.returncode == 0:
                assert attempt(host, "programs", place, "bob", *alices) == []
    assert len(joined) == 1, "the attempt works for the cluster's owner"
