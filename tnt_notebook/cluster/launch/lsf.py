"""LSF."""

from __future__ import annotations

from tnt_notebook.cluster.launch.batch import Job, System, asked, listed_in
from tnt_notebook.cluster.launch.processes import LsfJob
from tnt_notebook.cluster.request import Request

_FIELDS = "stat: pend_reason: time_left: exit_reason: exit_code: delimiter='|'"


def _directives(request: Request, name: str, output: str) -> list[str]:
    per_node = request.per_node or (-(-request.ranks // request.nodes) if request.nodes else None)
    lines = [f"#BSUB -J {name}", f"#BSUB -o {output}", f"#BSUB -n {request.ranks}"]
    if per_node:
        lines.append(f'#BSUB -R "span[ptile={per_node}]"')
    if request.cores:
        lines.append(f'#BSUB -R "affinity[core({request.cores})]"')
    if request.gpus:
        lines.append(f'#BSUB -gpu "num={request.gpus}/host"')
    if request.time_s:  # in minutes; of less than one, one
        minutes = -(-request.time_s // 60)
        lines.append(f"#BSUB -W {minutes // 60}:{minutes % 60:02}")
    if request.partition:
        lines.append(f"#BSUB -q {request.partition}")
    if request.account:
        lines.append(f"#BSUB -P {request.account}")
    return [*lines, *(f"#BSUB {option}" for option in request.extra)]


def _look(job: str) -> Job:
    return parsed(asked(["bjobs", "-noheader", "-o", _FIELDS, job]))


def parsed(said: str) -> Job:
    """A job, as ``bjobs -o`` describes it in the fields asked for."""
    values = [field.strip().strip("-") for field in said.strip().split("|")]
    state, waits, left, ends, code = (values + [""] * 5)[:5]
    if state in ("PEND", "PSUSP", "WAIT"):
        return Job("pending", waits or "it is in the queue")
    if state in ("RUN", "SSUSP", "USUSP", "PROV"):
        return Job("running", "", f"{left} left" if left else "")
    if state == "DONE":
        return Job("ended", "its processes ended")
    if state == "EXIT":
        return Job("ended", ends or "its processes failed", f"exit code {code}" if code else "")
    return Job("ended", "LSF knows nothing of it any more", said.strip()[:200])


LSF = System(
    name="lsf",
    title="LSF",
    engines=LsfJob,
    submit="bsub <",
    variable="LSB_JOBID",
    directives=_directives,
    hosts=(),
    mpi_arguments='--hostfile "$LSB_DJOB_HOSTFILE" --prtemca plm_ssh_agent blaunch',
    cancel=lambda name: ["bkill", "-J", name, "0"],
    listing=lambda name: ["bjobs", "-noheader", "-o", "jobid", "-J", name],
    look=_look,
    nodes=lambda: listed_in("LSB_DJOB_HOSTFILE"),
    tasks="LSB_DJOB_NUMPROC",
)
