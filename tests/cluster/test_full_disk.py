"""Where a disk is full a start says so, whichever of its files it is that finds no room."""

import json
import subprocess
import sys

import pytest

STARTS = """
import json, os, subprocess, sys
from pathlib import Path
from tnt_notebook.cluster import Cluster
from tnt_notebook.errors import ClusterError

folder = Path(os.environ["TNT_RUN_DIR"])
subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)  # with nobody else's
for room in sys.argv[1:]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", room, "none", folder], check=True)
    try:
        Cluster(2).stop()
        said = ""
    except ClusterError as error:
        said = str(error)
    left = [*os.listdir(folder), *os.listdir("/dev/shm")]
    print(json.dumps({"room": room, "said": said, "left": left}))
"""


MOUNTED = subprocess.run(
    ["sh", "-c", "unshare --mount mount -t tmpfs none /mnt"], capture_output=True, text=True
)


@pytest.mark.skipif(
    MOUNTED.returncode != 0, reason=f"this machine does not allow it: {MOUNTED.stderr.strip()}"
)
def test_it_is_said_and_nothing_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("TNT_RUN_DIR", str(tmp_path))
    # For files, folders, the configuration, and keys.
    rooms = ["size=16k", "nr_inodes=4", "nr_inodes=11", "nr_inodes=13"]
    start = ["unshare", "--mount", sys.executable, "-c", STARTS, *rooms]
    run = subprocess.run(start, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    told = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert [one["room"] for one in told] == rooms
    for one in told:
        assert f"cannot be written below {tmp_path}: No space left on device" in one["said"], one
        assert one["left"] == [], one
