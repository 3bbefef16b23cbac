"""What the processes of a warden and those who talk to them call things, and how long they wait.

A line of JSON each way over the socket in the cluster's folder::

    {"own": true, "name": "notebook.ipynb", "force": false}    -> {"owner": null} or who it is
    {"ask": true}                                              -> {"owner": ..., "ends_in_s": ...}
    {"keep_s": 3600}                                           -> {"keep_s": 3600}
    {"end": true}                                              -> {"left": []} once all is gone

The first process tells the second its state with each change, and hands over the connection of the
owner beside it. States::

    free -> owned       somebody connects and owns the cluster
    owned -> free       the owner's connection or process has ended; the lease begins
    free -> ending      the lease is over, and no fit goes on
    any -> ending       somebody asks for the end, or SIGTERM comes
    ending -> done      all is gone, or cannot be ended: the second ends, too

Free and owned are both ``watching``; a second that finds itself alone goes on in the state that it
was told last.
"""

from __future__ import annotations

from typing import Literal, TypedDict

MARKER = "TNT_CLUSTER_ID"
ENGINES_MARKER = "TNT_ENGINES_ID"  # of mpiexec, engines and what these start
RANKS = "ranks"  # the folder in which ranks of another host leave a file each, named by pid

GRACE_S = 2.0  # between SIGTERM and SIGKILL
GIVE_UP_S = 20.0  # a process in uninterruptible sleep cannot be ended by anybody
FIRST_OWNER_S = 60.0  # a kernel that was killed before it could connect
BUSY_S = 120.0  # since a fit has said that it goes on
LINGER_S = 30.0  # on other hosts, for ranks that begin late or are started again
ASKED_S = 10.0  # for a job's script to end by itself
CANCEL_S = 30.0  # for a batch system to do what it is told
LONGEST_S = 24 * 365 * 3600.0  # of a lease
LOOK_S = 2.0  # whether the other of two processes was stopped
LONGEST_LINE = 1 << 16
MOST_CLIENTS = 64  # each notebook needs one, and each list of clusters for a moment


class Plan(TypedDict):
    """What a warden keeps, and what it does at the end.

    Attributes:
        id: of the cluster.
        folders: which are removed.
        socket: where the warden listens.
        keep_s: how long it keeps the cluster once nobody owns it.
        busy: a file that is touched while a fit goes on.
        fit_s: how long such a fit keeps the cluster without an owner.
        ask, cancel, listing: commands about a job, see :func:`~.ending.end_job`; empty: no job.
        sweep: a command that cleans up on other hosts; empty where somebody outlives the ranks.
    """

    id: str
    folders: list[str]
    socket: str
    keep_s: float
    busy: str
    fit_s: float
    ask: list[str]
    cancel: list[str]
    listing: list[str]
    sweep: list[str]


Stage = Literal["watching", "ending", "done"]


class State(TypedDict):
    """All that the second process needs to go on, beside the connection of the owner.

    Attributes:
        owner: its name; None: nobody owns the cluster.
        free_since: since when, by the monotonic clock.
        keep_s: how long it is kept since then.
    """

    plan: Plan
    state: Stage
    owner: str | None
    free_since: float
    keep_s: float
