"""PBS: OpenPBS and PBS Professional; Torque, where ``--extra "-l nodes=2:ppn=4"`` says what it
understands instead of ``select``."""

from __future__ import annotations

import re

from tnt_notebook.cluster.launch.batch import Job, System, asked, silent
from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.cluster.launch.script import FORWARD, FORWARDED, counted

_PENDING = {
    "Q": "it is in the queue",
    "H": "it is held",
    "W": "its time has not come",
    "T": "it is being moved",
}
_RUNNING = {"R": "", "B": "", "S": "it is suspended", "U": "it is suspended"}
_ENDED = {"F", "C", "X", "M"}
#: Exit statuses that PBS itself gives; of Torque -10 to -12.
_ENDS = {
    "0": "its processes ended",
    "271": "it was cancelled",
    "-29": "its time was over",
    "-11": "its time was over",
    "-27": "it ran out of memory",
    "-26": "it ran out of memory",
    "-10": "it ran out of memory",
    "-28": "it used more processor time than it may",
    "-12": "it used more processor time than it may",
}
#: Open MPI's daemon is begun by a line of shell, and pbs_tmrsh runs programs. Without it
#: there is ssh, Open MPI's default.
_AGENT = """\
printf '%s\\n' 'host=$1; shift' 'exec pbs_tmrsh "$host" /bin/sh -c "$*"' > "$TNT_FOLDER/agent"
agent="ssh : rsh"; command -v pbs_tmrsh > /dev/null && agent="sh $TNT_FOLDER/agent"
"""


def _resources(request: Request) -> list[str]:
    if any(re.match(r"-l\s*(select|nodes)\s*=", option) for option in request.extra):
        return []
    return [f"-l {said}" for said in _chunks(request)]


def _chunks(request: Request) -> list[str]:
    """A chunk for each node, as even as can be; where nodes do not matter, one for each rank."""
    cores, ranks = request.cores or 1, request.ranks
    nodes = request.nodes or (1 if request.gpus or request.per_node else None)
    if nodes is None:
        return [f"select={ranks}:ncpus={cores}:mpiprocs=1"]
    if request.per_node:
        parts = [(ranks // request.per_node, request.per_node), (1, ranks % request.per_node)]
    else:
        parts = [(ranks % nodes, ranks // nodes + 1), (nodes - ranks % nodes, ranks // nodes)]
    gpus = f":ngpus={request.gpus}" if request.gpus else ""
    chunks = [f"{n}:ncpus={p * cores}:mpiprocs={p}{gpus}" for n, p in parts if n and p]
    return ["select=" + "+".join(chunks), *(["place=scatter"] if nodes > 1 else [])]


def _look(job: str) -> Job:
    said = asked(["qstat", "-f", job])
    # OpenPBS shows a job that has ended by -x only, which asks Torque for XML.
    return parsed(asked(["qstat", "-x", "-f", job]) if "has finished" in said else said)


def parsed(said: str) -> Job:
    """A job, as ``qstat -f`` describes it."""
    # Long values go on in lines that begin with a tab. The job's own state comes first, before
    # anything that a person may have written.
    found = re.findall(r"^ *([\w.]+) = (.*)$", said.replace("\n\t", ""), re.MULTILINE)
    fields = dict(reversed(found))
    state, comment = fields.get("job_state", ""), fields.get("comment", "")
    if state in _PENDING:
        begin = fields.get("estimated.start_time", "")
        return Job("pending", comment or _PENDING[state], begin and f"expected {begin}")
    if state in _RUNNING:
        used, limit = fields.get("resources_used.walltime"), fields.get("Resource_List.walltime")
        return Job("running", _RUNNING[state], f"{used} of {limit}" if used and limit else "")
    if state == "E":
        return Job("ending")
    if state in _ENDED:
        return Job("ended", _end(state, fields.get("Exit_status", "")), comment)
    if re.search(r"Unknown Job Id", said, re.IGNORECASE):
        return Job("ended", "PBS knows nothing of it any more")
    return silent(said)


def _end(state: str, code: str) -> str:
    if state == "M":
        return "it was moved to another server"
    if code in _ENDS:
        return _ENDS[code]
    if code.isdecimal() and 256 < int(code) < 321:
        return f"signal {int(code) - 256} ended it"
    return f"exit status {code}" if code else "it never ran"


SYSTEM = System(
    title="PBS",
    variable="PBS_JOBID",
    directive="#PBS",
    # -S: not the user's shell, whatever the first line says
    head=("-N {name}", "-S /bin/bash", "-j oe", "-o {output}", "-r n"),
    resources=_resources,
    limits={"time": "-l walltime={}", "partition": "-q {}", "account": "-A {}"},
    submit="qsub",
    answer=re.compile(r"^(\d+)(?:\.\S+)?\s*$", re.MULTILINE),
    cancel=("sh", "-c", "qselect -N {name} | xargs -r qdel"),
    listing=("qselect", "-N", "{name}"),
    look=_look,
    prepare=lambda _: [FORWARD, counted("PBS_NODEFILE"), *_AGENT.splitlines()],
    mpi_arguments='--hostfile "$TNT_FOLDER/hosts" --prtemca plm_ssh_agent "$agent" ' + FORWARDED,
    nodefile="PBS_NODEFILE",
    writes_at_once=False,
)
