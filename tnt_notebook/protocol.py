"""What the notebook and its ranks call each other's things: every name once, and who says it to
whom.

What else crosses has a place of its own: frames in :mod:`tnt_notebook.telemetry.frame`, channels
between ranks in ``comm/channels.py``, and names that :mod:`tnt_notebook.warden` uses, which runs
without this package, there.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path

#: The program of a rank; and the package of its functions that the notebook calls.
ENGINE = "tnt_notebook.engine"


class Call(StrEnum):
    """Requests: functions of :data:`ENGINE` that the notebook calls, ``module:function``."""

    DESCRIBE = "cell:describe"  # all ranks, at the start: who they are
    RECOVER = "cell:recover"  # ranks that live, after a failure
    PRELOAD = "preload:begin"  # all ranks, once they answer: they load Keras in the background
    PUSH = "cell:push"  # all ranks: names for their cells
    FETCH = "cell:fetch"  # one rank: what a name is there
    VARIABLES = "complete:variables"  # rank 0: for Tab
    COMPLETE = "complete:complete"  # the same
    FILL_SEATS = "cell:fill_seats"  # ranks that live: to start others for those that died
    RUN_FIT = "fit:run_fit_cell"  # all ranks
    FIT_RESULT = "fit:result_of"  # all ranks, from a notebook that has not begun the fit
    DIVIDE = "trial:divide"  # ranks that live: into groups, each a world of its own
    RUN_TRIAL = "trial:run_trial"  # the ranks of a group
    RUN_STUDY = "study:run"  # the ranks of a group: a cell, as a study of scaling wants it
    EXPECT = "study:expect"  # the same, after it
    MACHINE = "study:machine"  # ranks that live
    FORGET_STUDY = "study:forget"  # the same: what a study has kept there
    MODEL = "fit:model_bytes"  # rank 0: what has been trained
    MEASURE = "bench:measure"  # all ranks
    SAVE_RULES = "bench:save"  # rank 0: what has been measured, for later
    LOAD_RULES = "bench:load"  # all ranks
    KNOWN_RULES = "bench:known_rules"  # rank 0
    MEASURE_LOADERS = "loading:measure"  # all ranks
    MEASURE_INPUT = "loading:measure_input"  # all ranks
    PLAN = "plan:plan"  # rank 0
    PLAN_BEST = "plan:plan_best"  # rank 0
    PLAN_MESH = "plan:plan_mesh"  # rank 0
    MEASURE_LINK = "plan:measure_link"  # all ranks
    MEASURE_OVERHEADS = "plan:measure_overheads"  # all ranks

    @property
    def expression(self) -> str:
        """What gives the function on a rank; also where its module has not been loaded."""
        module, _, name = self.partition(":")
        return f"__import__('{ENGINE}.{module}', fromlist=['*']).{name}"


class Published(StrEnum):
    """Data that ranks publish while a call goes on, under one key each; rank 0 alone, mostly."""

    FRAME = "tnt_frame"  # telemetry, during RUN_FIT, RUN_TRIAL and RUN_STUDY
    ACTIVITIES = "tnt_activities"  # each rank what it does, during these
    MEASURED = "tnt_bench"  # how far it is, during MEASURE
    LOADED = "tnt_loading"  # how far it is, during MEASURE_LOADERS and MEASURE_INPUT
    PLANNED = "tnt_plan"  # how far it is, during PLAN, PLAN_BEST and PLAN_MESH


# Signals, from the notebook or a batch system to ranks.

#: To end the running fit after its current step.
STOP = signal.SIGUSR1

#: To leave the running fit after its current step with a checkpoint: time is running out. What LSF
#: and Grid Engine send before a time limit, too.
SUSPEND = signal.SIGUSR2

#: To free this rank, and all others, from waiting for each other: it works also where the main
#: thread is in a call of C.
FREE = signal.SIGRTMIN + 4

#: To write into the log where each thread is.
STACKS = signal.SIGRTMIN + 5

# Environment of a rank, from the notebook.

#: The folder of its cluster.
FOLDER = "TNT_FOLDER"

#: Who may reach the ports of Open MPI's daemons: for ``kernels/guard``, preloaded where it is set.
PORTS = "TNT_PORTS"

#: The default transport of its world, how many lanes it has, and the rate of its emulated link.
TRANSPORT, LANES, LINK = "TNT_TRANSPORT", "TNT_LANES", "TNT_LINK"

# Files in the folder of a cluster.

#: Touched by rank 0 while a fit goes on, for the warden.
BUSY = "busy"

#: Made by the script of a job whose time is nearly over, for rank 0.
TIME_IS_UP = "time-is-up"

#: Temporary files of ranks on the notebook's host.
TEMPORARY = "tmp"


def rank_log(rank: int) -> str:
    """Everything a rank wrote; read by the notebook. In the folder of logs."""
    return f"rank-{rank}.log"


# Files on each host.

#: Where the folders of clusters with their shared memory lie, if the host has it.
SHARED_MEMORY = Path("/dev/shm")

#: The name of a cluster's folder there, and of the one with all else.
CLUSTERS = "tnt-*-*"

#: On the notebook's host alone: a link to the cluster's folder.
HOME_LINK = "folder"
