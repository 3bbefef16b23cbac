"""Slurm."""

from __future__ import annotations

import os
import re

from tnt_notebook.cluster.launch.batch import Job, System, asked, silent
from tnt_notebook.cluster.launch.options import Request

_WAITS = {
    "Resources": "nodes are not free yet",
    "Priority": "other jobs go first",
    "None": "it was just submitted",
    "BeginTime": "its time has not come",
    "ReqNodeNotAvail": "nodes that it needs are drained or down",
    "PartitionDown": "its partition is down",
    "PartitionTimeLimit": "it asks for more time than its partition gives",
    "PartitionNodeLimit": "it asks for more nodes than its partition has",
    "PartitionConfig": "its partition does not allow what it asks for, as nodes, time or memory: "
    "scontrol show partition",
    "BadConstraints": "no node has what it asks for",
    "Dependency": "it waits for another job",
    "JobHeldUser": "it is held",
    "JobHeldAdmin": "it is held by an administrator",
}
_ENDS = {
    "TIMEOUT": "its time was over",
    "CANCELLED": "it was cancelled",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "it ran out of memory",
    "PREEMPTED": "another job took its nodes",
    "DEADLINE": "its deadline passed",
    "COMPLETED": "its processes ended",
    "FAILED": "its processes failed",
    "BOOT_FAIL": "its nodes did not boot",
}
_PENDING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESV_DEL_HOLD"}
_RUNNING = {"RUNNING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"}


def _resources(request: Request) -> list[str]:
    options = {
        "ntasks": request.ranks,
        "nodes": request.nodes,
        "ntasks-per-node": request.per_node,
        "cpus-per-task": request.cores,
        "gpus-per-node": request.gpus or None,
    }
    return [f"--{key}={value}" for key, value in options.items() if value is not None]


def _look(job: str) -> Job:
    said = asked(["scontrol", "--oneliner", "show", "job", job])
    found = parsed(said)
    if found.state == "pending":
        place = asked(["squeue", "--noheader", "--states=PENDING", "--sort=-p,i", "--format=%i"])
        return Job("pending", found.why, ", ".join(filter(None, [_place(place, job), found.more])))
    return found


def parsed(said: str) -> Job:
    """A job, as ``scontrol --oneliner show job`` describes it."""
    # Of a job of several parts, the first; and its own state comes before what a person may have
    # written as a comment.
    found = re.findall(r"(?:^|\s)([A-Za-z][\w:/]*)=(\S*)", said)
    fields: dict[str, str] = dict(reversed(found))
    state = fields.get("JobState", "").partition("+")[0]
    reason = fields.get("Reason", "None")
    if state in _PENDING:
        code = "ReqNodeNotAvail" if "DRAINED" in reason else reason.partition(",")[0]
        begin = fields.get("StartTime", "Unknown")
        more = f"expected at {begin.replace('T', ' ')}" if begin[:1].isdigit() else ""
        return Job("pending", _WAITS.get(code, reason.replace("_", " ")), more)
    if state in _RUNNING:
        limit = fields.get("TimeLimit", "")
        until = fields.get("EndTime", "").replace("T", " ")
        return Job("running", "", f"until {until}" if limit[:1].isdigit() and until else "")
    if state == "COMPLETING":
        return Job("ending", _ENDS["TIMEOUT"] if reason == "TimeLimit" else "")
    if not state:
        if "Invalid job id" in said:
            return Job("ended", "Slurm knows nothing of it any more")
        return silent(said)
    code = fields.get("ExitCode", "0:0")
    more = f"exit code {code}" if state == "FAILED" else ""
    return Job("ended", _ENDS.get(state, state.lower()), more)


def _place(queue: str, job: str) -> str:
    ids = [line.strip() for line in queue.splitlines()]
    if job not in ids or len(ids) == 1:
        return ""
    return f"{ids.index(job) + 1} of {len(ids)} in the queue"


def _nodes() -> list[str]:
    if listed := os.environ.get("SLURM_JOB_NODELIST"):
        return asked(["scontrol", "show", "hostnames", listed]).split()
    return asked(["sinfo", "--noheader", "--Node", "--format=%o"]).split()


SYSTEM = System(
    title="Slurm",
    variable="SLURM_JOB_ID",
    directive="#SBATCH",
    head=(
        *("--job-name={name}", "--output={output}", "--open-mode=append", "--no-requeue"),
        "--export=NIL",  # the script sources what it needs
        "--signal=B:USR1@{notice}",
    ),
    resources=_resources,
    limits={
        "time": "--time={}",
        "memory": "--mem={}",
        "partition": "--partition={}",
        "account": "--account={}",
    },
    submit="sbatch",
    answer=re.compile(r"Submitted batch job (\d+)"),
    cancel=("scancel", "--name={name}", "--me"),
    listing=("squeue", "--noheader", "--name={name}", "--me", "--format=%i"),
    look=_look,
    # mpiexec starts its daemons by srun, which would keep to the job's --export=NIL.
    prepare=lambda _: ["export SLURM_EXPORT_ENV=ALL"],
    mpi_arguments="",
    nodes=_nodes,
    tasks="SLURM_NTASKS",
    ask=(
        *("sh", "-c"),  # of a job that waits, scancel would say nothing
        "squeue --noheader --name={name} --me --states=RUNNING --format=%i | grep -q . && "
        "scancel --batch --signal=TERM --name={name} --me",
    ),
    # The job's number of tasks is not that of its nodes. The step of the ranks may still be there.
    each_node=(
        *("env", "-u", "SLURM_NTASKS", "-u", "SLURM_NPROCS", "SLURM_OVERLAP=1"),
        *("srun", "--ntasks-per-node=1", "--mpi=none"),
    ),
    warns=True,
)
