"""Clusters over a hostfile: started on emulated hosts, training over real TCP, losing a host."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import Rack, hosts, needed
from tests.support.rank_pool import ROOT, rank_environment
from tests.support.waiting import eventually

pytestmark = needed


@pytest.fixture
def rack() -> Iterator[Rack]:
    with hosts(3) as rack:
        yield rack


@pytest.mark.parametrize(
    "event", ["crash", "unplug", pytest.param("rank", marks=pytest.mark.thorough)]
)
def test_start_train_and_lose_a_host(rack, tmp_path, event):
    agent = tmp_path / "agent"  # ssh brings nothing of the environment along
    agent.write_text(f'#!/bin/sh\nexec env -i HOME=$HOME PATH=/usr/bin:/bin {rack.agent} "$@"\n')
    agent.chmod(0o755)
    (tmp_path / "tnt_config.py").write_text(f"c.ClusterDefaults.ssh = '{agent}'\n")
    (tmp_path / "hosts").write_text("node2 slots=1\nnode3 slots=1\n")
    clusters = tmp_path / "clusters"
    folders = {"JUPYTER_CONFIG_PATH": str(tmp_path), "TNT_RUN_DIR": str(clusters)}
    notebook = rack[0].popen(
        [sys.executable, "-m", "tests.hosts.notebook", str(tmp_path / "hosts"), str(tmp_path)],
        cwd=ROOT, env={**rank_environment(), **folders}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    told: dict[str, str] = {}
    said: list[str] = []

    def until(word: str) -> None:
        for line in notebook.stdout:
            said.append(line)
            key, _, value = line.strip().partition(" ")
            told[key] = value
            if key == word:
                return
        raise AssertionError("".join(said))

    try:
        until("TRAINS")
        assert told["ON"].startswith("node2 node3 10.77.0.1, on the way to node2 (eth0)")
        assert told["BY"] == "mpi" and len(told["LOSS"].split()) == 2
        segments = told["FOLDER"].split()[1]
        assert Path(f"/proc/{rack[1].pid}/root{segments}").is_dir()
        guarded = "tr '\\0' '\\n' < /proc/$(pgrep -nx prted)/environ | grep LD_PRELOAD"
        daemon = rack[2].run(["sh", "-c", guarded], capture_output=True, text=True)
        assert "libtnt_ports.so" in daemon.stdout, daemon
        if event == "crash":
            rack[2].crash()
        elif event == "unplug":
            rack[2].run(["ip", "link", "set", "eth0", "down"], check=True)
        else:
            rack[2].run(["pkill", "-KILL", "-n", "-f", "tnt_notebook.engine"], check=True)
        notebook.stdin.write("\n")
        notebook.stdin.flush()
        until("AGAIN")
        why = {
            "crash": ": the host was lost", "unplug": ": it fell silent",
            "rank": " (SIGKILL, signal 9: often out of memory)",
        }[event]  # fmt: skip
        assert told["ERROR"].startswith(f"rank 1 died on node3{why}. "), told["ALL"]
        assert float(told["AFTER"]) < 8 and told["AGAIN"] == "idle idle"
        assert notebook.wait(300) == 0
    finally:
        notebook.kill()
        notebook.communicate()
    assert list(clusters.iterdir()) == []
    for host in rack[:2]:
        eventually(lambda host=host: not os.path.lexists(f"/proc/{host.pid}/root{segments}"))
