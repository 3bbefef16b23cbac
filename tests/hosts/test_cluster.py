"""Clusters over a hostfile: started on emulated hosts, training over real TCP, losing a host."""

from __future__ import annotations

import json
import os
import signal
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
    config = tmp_path / "config"
    config.mkdir()
    agent = tmp_path / "agent"  # ssh brings nothing of the environment along
    agent.write_text(f'#!/bin/sh\nexec env -i HOME=$HOME PATH=/usr/bin:/bin {rack.agent} "$@"\n')
    agent.chmod(0o755)
    (config / "tnt_config.json").write_text(json.dumps({"ClusterDefaults": {"ssh": str(agent)}}))
    (tmp_path / "hosts").write_text("node2 slots=1\nnode3 slots=1\n")
    environment = {
        **rank_environment(),
        "JUPYTER_CONFIG_PATH": str(config),
        "TNT_RUN_DIR": str(tmp_path / "clusters"),
    }
    notebook = rack[0].popen(
        [sys.executable, "-m", "tests.hosts.notebook", str(tmp_path / "hosts"), str(tmp_path)],
        cwd=ROOT, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    told: dict[str, str] = {}
    said: list[str] = []

    def until(word: str) -> None:
        assert notebook.stdout is not None
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
        assert (
            subprocess.run(
                ["test", "-d", f"/proc/{rack[1].pid}/root{segments}"], check=False
            ).returncode == 0
        )  # fmt: skip
        guarded = "tr '\\0' '\\n' < /proc/$(pgrep -nx prted)/environ | grep LD_PRELOAD"
        daemon = rack[2].run(["sh", "-c", guarded], capture_output=True, text=True)
        assert "libtnt_ports.so" in daemon.stdout, daemon
        if event == "crash":
            rack[2].crash()
        elif event == "unplug":
            rack[2].run(["ip", "link", "set", "eth0", "down"], check=True)
        else:
            pids = rack[2].run(
                ["pgrep", "-f", "tnt_notebook.engine"], capture_output=True, text=True
            )
            first = min(map(int, pids.stdout.split()))
            rack[2].run(["kill", f"-{int(signal.SIGKILL)}", str(first)], check=True)
        assert notebook.stdin is not None
        notebook.stdin.write("\n")
        notebook.stdin.flush()
        until("AGAIN")
        why = {"crash": ": the host was lost", "unplug": ": it fell silent", "rank": ""}[event]
        assert told["ERROR"].startswith(f"rank 1 died on node3{why}. "), told["ALL"]
        assert float(told["AFTER"]) < 8 and told["AGAIN"] == "idle idle"
        assert notebook.wait(60) == 0
    finally:
        notebook.kill()
        notebook.communicate()
    assert list((tmp_path / "clusters").iterdir()) == []
    for host in rack[:2]:
        eventually(lambda host=host: not _left(host, segments), 40)


def _left(host: object, segments: str) -> list[str]:
    path = f"/proc/{host.pid}/root/dev/shm"  # type: ignore[attr-defined]
    return [name for name in os.listdir(path) if name == Path(segments).name]
