"""PBS: OpenPBS, PBS Professional, and Torque as far as it is alike."""

from __future__ import annotations

import re

from tnt_notebook.cluster.launch.batch import Job, System, asked, clock, listed_in
from tnt_notebook.cluster.launch.processes import PbsJob
from tnt_notebook.cluster.request import Request

_STATES = {
    "Q": "it is in the queue",
    "H": "it is held",
    "W": "its time has not come",
    "T": "it is being moved",
}


def _directives(request: Request, name: str, output: str) -> list[str]:
    per_node = request.per_node or -(-request.ranks // (request.nodes or 1))
    chunk = [f"ncpus={per_node * (request.cores or 1)}", f"mpiprocs={per_node}"]
    chunk += [f"ngpus={request.gpus}"] if request.gpus else []
    lines = [
        f"#PBS -N {name}",
        f"#PBS -l select={request.nodes or 1}:{':'.join(chunk)}",
        "#PBS -j oe",
        f"#PBS -o {output}",
    ]
    if request.time_s:
        lines.append(f"#PBS -l walltime={clock(request.time_s)}")
    if request.partition:
        lines.append(f"#PBS -q {request.partition}")
    if request.account:
        lines.append(f"#PBS -A {request.account}")
    return [*lines, *(f"#PBS {option}" for option in request.extra)]


def _look(job: str) -> Job:
    return parsed(asked(["qstat", "-x", "-f", job]))


def parsed(said: str) -> Job:
    """A job, as ``qstat -f`` describes it."""
    # Long values go on in lines that begin with a tab.
    fields = dict(re.findall(r"^\s*([\w.]+) = (.*)$", said.replace("\n\t", ""), re.MULTILINE))
    state = fields.get("job_state", "")
    if state in _STATES:
        begin = fields.get("estimated.start_time", "")
        return Job(
            "pending", fields.get("comment") or _STATES[state], begin and f"expected {begin}"
        )
    if state in ("R", "E", "S", "B"):
        used, limit = fields.get("resources_used.walltime"), fields.get("Resource_List.walltime")
        return Job("running", "", f"{used} of {limit}" if used and limit else "")
    if state in ("F", "C"):
        code = fields.get("Exit_status", "")
        why = {"0": "its processes ended", "-29": "its time was over", "271": "it was cancelled"}
        return Job("ended", why.get(code, f"exit status {code}"), fields.get("comment", ""))
    return Job("ended", "PBS knows nothing of it any more", said.strip()[:200])


PBS = System(
    name="pbs",
    title="PBS",
    engines=PbsJob,
    submit="qsub",
    variable="PBS_JOBID",
    directives=_directives,
    hosts=("agent=$(command -v pbs_tmrsh || command -v ssh)",),
    mpi_arguments='--hostfile "$PBS_NODEFILE" --prtemca plm_ssh_agent "$agent"',
    cancel=lambda name: ["sh", "-c", f"qselect -N {name} | xargs -r qdel"],
    listing=lambda name: ["qselect", "-N", name],
    look=_look,
    nodes=lambda: listed_in("PBS_NODEFILE"),
    tasks="PBS_NP",
)
