"""On hosts other than the notebook's: waits until the last rank there has ended, and cleans up."""

from __future__ import annotations

import os
import signal
import time

from tnt_notebook.warden.ending import remove
from tnt_notebook.warden.processes import end_processes, ranks_on_host
from tnt_notebook.warden.protocol import LINGER_S


def keep_host(cluster_id: str, home: str, segments: str, temporary: str) -> int:
    """Waits on a host for the end of its ranks, and cleans up; 1 when something stays.

    Args:
        home: the folder that all hosts see; where it is gone the cluster has been stopped.
    """
    # A batch system asks all processes at once; when the ranks have ended there is work to do here.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    seen = time.monotonic()
    while time.monotonic() - seen < LINGER_S:
        if ranks_on_host(cluster_id, segments):
            seen = time.monotonic()
        elif not os.path.isdir(home):
            break
        time.sleep(0.5)
    left = end_processes(cluster_id)
    remove([segments, temporary])
    return 1 if left else 0
