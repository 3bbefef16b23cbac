"""The host that other tests stand on; they fail, too, where it is not what it should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.rank_pool import ROOT
from tests.support.shared_host import SharedHost
from tests.support.waiting import eventually

pytestmark = pytest.mark.thorough

HOLD = """
import subprocess, sys
from tests.support.shared_host import shared_host
with shared_host("carol") as host:
    sleeper = ["sh", "-c", "setsid sleep 1000 & touch /dev/shm/hers; echo begun; wait"]
    process = host.popen(sleeper, "carol", stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\\n"
    print(host.folder, flush=True)
    sys.stdin.read()
"""


def test_users_are_real_and_only_there(host: SharedHost) -> None:
    script = "id -un; id -u; pwd; touch file /dev/shm/file; stat -c %U file; ls ~bob >/dev/null"
    said = host.run(["sh", "-c", script], "alice", capture_output=True, text=True).stdout.split()
    assert said == ["alice", str(host.uids["alice"]), str(host.home("alice")), "alice"]
    assert host.run(["rm", "/dev/shm/file", "file"], "alice").returncode == 0
    assert "alice" not in Path("/etc/passwd").read_text() and not Path("/dev/shm/file").exists()


def test_nothing_is_left_when_its_owner_is_killed(host: SharedHost) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        folder = Path(holder.stdout.readline().strip())
        started = psutil.Process(holder.pid).children(recursive=True)
        assert folder.exists() and len(started) > 2
        holder.kill()
        holder.wait(30)
    _, alive = psutil.wait_procs(started, timeout=15)
    assert not alive
    eventually(lambda: not folder.exists())
    assert not Path("/dev/shm/hers").exists()
    assert host.run(["true"], "alice").returncode == 0  # the one beside it lives on
