"""LSF."""

from __future__ import annotations

import re
import shlex

from tnt_notebook.cluster.launch.batch import Job, System, asked, listed_in, number_in, silent
from tnt_notebook.cluster.launch.processes import LsfJob
from tnt_notebook.cluster.launch.script import FORWARD, FORWARDED, counted
from tnt_notebook.cluster.options import Request

#: Without a width, which would cut the reasons.
_FIELDS = "stat pend_reason time_left exit_reason exit_code delimiter='|'"
_ENDS = {
    "TERM_RUNLIMIT": "its time was over",
    "TERM_OWNER": "it was cancelled",
    "TERM_FORCE_OWNER": "it was cancelled",
    "TERM_ADMIN": "it was cancelled by an administrator",
    "TERM_FORCE_ADMIN": "it was cancelled by an administrator",
    "TERM_MEMLIMIT": "it ran out of memory",
    "TERM_PREEMPT": "another job took its nodes",
}
_NONE = "is not found|No unfinished job found|No matching job found"


def _directives(request: Request, name: str, output: str) -> list[str]:
    per_node = request.per_node or (-(-request.ranks // request.nodes) if request.nodes else None)
    lines = [
        f"#BSUB -J {name}",
        f"#BSUB -o {shlex.quote(output)}",
        f"#BSUB -n {request.ranks}",
        "#BSUB -rn",
    ]
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
    line = next((line for line in said.splitlines() if line.count("|") >= 4), "")
    state, *values = ("" if f.strip() == "-" else f.strip() for f in line.split("|"))
    if not state:
        gone = re.search(_NONE, said)
        return Job("ended", "LSF knows nothing of it any more") if gone else silent(said)
    # A reason might hold the delimiter; the others cannot.
    *waits, left, ends, code = values
    reason = " ".join("|".join(waits).split()).rstrip(";")
    if state in ("PEND", "WAIT", "PROV"):
        return Job("pending", reason or "it is in the queue")
    if state == "PSUSP":
        return Job("pending", reason or "it is held")
    if state in ("RUN", "SSUSP", "USUSP", "UNKWN"):
        why = {"RUN": "", "UNKWN": "its host does not answer"}.get(state, "it is suspended")
        hours = re.match(r"\d+:\d+", left)  # a letter after it says by which limit
        return Job("running", why, f"{hours[0]} left" if hours else "")
    if state == "DONE":
        return Job("ended", "its processes ended")
    if state in ("EXIT", "ZOMBI"):
        why = _ENDS.get(ends.partition(":")[0], ends or "its processes failed")
        return Job("ended", why, f"exit code {code}" if code else "")
    return silent(said)


SYSTEM = System(
    title="LSF",
    engines=LsfJob,
    submit="bsub",
    variable="LSB_JOBID",
    directives=_directives,
    prepare=lambda _: [FORWARD, counted("LSB_DJOB_HOSTFILE")],
    mpi_arguments=f'--hostfile "$TNT_FOLDER/hosts" --prtemca plm_ssh_agent blaunch {FORWARDED}',
    cancel=lambda name: ["bkill", "-J", name, "0"],
    listing=lambda name: [
        *("sh", "-c"),
        f"bjobs -noheader -o jobid -J {name} 2>&1 | grep -Ev '{_NONE}'; true",
    ],
    look=_look,
    nodes=lambda: listed_in("LSB_DJOB_HOSTFILE"),
    tasks=number_in("LSB_DJOB_NUMPROC"),
    writes_at_once=False,
)
