"""Grid Engine: Sun's, Univa's, Altair's, and the free ones."""

from __future__ import annotations

import re

from tnt_notebook.cluster.launch.batch import Job, System, asked, clock, listed_in
from tnt_notebook.cluster.launch.processes import SgeJob
from tnt_notebook.cluster.request import Request


def _directives(request: Request, name: str, output: str) -> list[str]:
    lines = [f"#$ -N {name}", "#$ -S /bin/bash", "#$ -j y", f"#$ -o {output}", "#$ -cwd"]
    # A site names its parallel environments; mpi is what most call it. --extra "-pe ..." says more.
    if not any(option.startswith("-pe ") for option in request.extra):
        lines.append(f"#$ -pe mpi {request.ranks * (request.cores or 1)}")
    if request.gpus:
        lines.append(f"#$ -l gpu={request.gpus}")
    if request.time_s:
        lines.append(f"#$ -l h_rt={clock(request.time_s)}")
    if request.partition:
        lines.append(f"#$ -q {request.partition}")
    if request.account:
        lines.append(f"#$ -A {request.account}")
    return [*lines, *(f"#$ {option}" for option in request.extra)]


def _look(job: str) -> Job:
    # qstat -j says nothing of a job that has ended, and its list nothing of why one waits.
    listed = parsed(asked(["qstat"]), job)
    if listed.state == "ended":
        return ended(asked(["qacct", "-j", job]))
    if listed.state == "pending":
        why = re.search(r"^scheduling info:\s+(.+)$", asked(["qstat", "-j", job]), re.MULTILINE)
        return Job("pending", why[1].strip() if why else listed.why)
    return listed


def parsed(said: str, job: str) -> Job:
    """A job in the list that ``qstat`` prints."""
    for line in said.splitlines():
        words = line.split()
        if len(words) > 4 and words[0] == job:
            state = words[4]
            if "q" in state or "h" in state:
                stuck = "E" in state
                return Job("pending", "it is in error" if stuck else "it is in the queue")
            return Job("running")
    return Job("ended")


def ended(said: str) -> Job:
    """A job that has ended, as ``qacct -j`` describes it."""
    fields = dict(re.findall(r"^(\w+)\s+(.*?)\s*$", said, re.MULTILINE))
    if fields.get("failed", "0").split()[0] not in ("0",):
        return Job("ended", fields["failed"])
    if "exit_status" not in fields:
        return Job("ended", "Grid Engine has not said why")
    code = fields["exit_status"].split()[0]
    return Job("ended", "its processes ended" if code == "0" else f"exit status {code}")


SGE = System(
    name="sge",
    title="Grid Engine",
    engines=SgeJob,
    submit="qsub",
    variable="PE_HOSTFILE",
    directives=_directives,
    hosts=("""awk '{print $1" slots="$2}' "$PE_HOSTFILE" > "$TNT_FOLDER/hosts\"""",),
    mpi_arguments='--hostfile "$TNT_FOLDER/hosts"',
    cancel=lambda name: ["qdel", name],
    listing=lambda name: ["sh", "-c", f"qstat -r | grep -F {name}; true"],
    look=_look,
    nodes=lambda: listed_in("PE_HOSTFILE"),
    tasks="NSLOTS",
)
