"""The lease a notebook kernel holds on the processes and files of a cluster.

As long as the kernel lives and holds the lease they stay; afterwards the supervisor ends them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tnt_notebook.cluster import supervisor
from tnt_notebook.errors import ClusterError


class Lease:
    """Held from before the first process starts until :meth:`release`."""

    def __init__(self, cluster_id: str, folders: Iterable[Path]) -> None:
        self._cluster_id = cluster_id
        self._folders = [str(folder) for folder in folders]
        self._supervisor = subprocess.Popen(
            [
                sys.executable,
                *("-I", "-S"),
                supervisor.__file__,
                cluster_id,
                str(os.getpid()),
                *self._folders,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal is not for it
            cwd="/",
        )

    def release(self) -> None:
        """Ends every process of the cluster and removes its folders.

        Raises:
            ClusterError: a process could not be ended.
        """
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(supervisor.GIVE_UP_S + 10)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        # Whatever became of the supervisor, nothing may stay behind.
        left = supervisor.end_processes(self._cluster_id)
        supervisor.remove(self._folders)
        if left:
            raise ClusterError(
                f"Processes {', '.join(map(str, left))} of the cluster do not end, not even by "
                "SIGKILL: they wait for a device or a file system. Ask the machine's operator."
            )
