"""Keeps a cluster, and cleans up after it: a process of its own, in a session of its own.

Whoever owns the cluster, a notebook kernel, is connected to the socket in its folder. When nobody
has been for as long as the lease says, or when the owner asks for the end, every process of the
cluster is ended, its job is cancelled, and its folders are removed.

Two processes do so, since one may be killed: the second knows who owns the cluster, and holds the
same sockets. When the first ends before it has done its work, the second goes on with it, and
neither owner nor cluster notice. There are two again then, also when the second has ended.

On other hosts there is a smaller one: it waits until the last rank there has ended, and cleans up.

Loads nothing but a part of Python's own library: these processes are small, and start at once.
"""

from __future__ import annotations

import os

from tnt_notebook.warden.ending import end, remove
from tnt_notebook.warden.processes import (
    end_processes,
    pids_count_in,
    processes_of,
    ranks_on_host,
)
from tnt_notebook.warden.protocol import (
    ASKED_S,
    CANCEL_S,
    ENGINES_MARKER,
    GIVE_UP_S,
    LINGER_S,
    MARKER,
    RANKS,
    Plan,
)

__all__ = [
    "ASKED_S", "CANCEL_S", "ENGINES_MARKER", "GIVE_UP_S", "LINGER_S", "MARKER", "PROGRAM", "RANKS",
    "Plan", "end", "end_processes", "pids_count_in", "processes_of", "ranks_on_host", "remove",
]  # fmt: skip

#: What ``python -I -S`` runs: with a plan as a line of JSON on stdin; on other hosts with the
#: arguments of :func:`tnt_notebook.warden.host.keep_host`.
PROGRAM = os.path.join(os.path.dirname(__file__), "__main__.py")
