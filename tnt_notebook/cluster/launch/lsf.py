"""LSF."""

from __future__ import annotations

import re

from tnt_notebook.cluster.launch.batch import Job, System, asked, silent
from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.cluster.launch.script import FORWARD, FORWARDED, counted

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


def _resources(request: Request) -> list[str]:
    per_node = request.per_node or (-(-request.ranks // request.nodes) if request.nodes else None)
    return [
        f"-n {request.ranks}",
        *([f'-R "span[ptile={per_node}]"'] if per_node else []),
        *([f'-R "affinity[core({request.cores})]"'] if request.cores else []),
        *([f'-gpu "num={request.gpus}/host"'] if request.gpus else []),
    ]


def _clock(seconds: int) -> str:
    minutes = -(-seconds // 60)  # of less than one, one
    return f"{minutes // 60}:{minutes % 60:02}"


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
    variable="LSB_JOBID",
    directive="#BSUB",
    head=("-J {name}", "-o {output}", "-rn"),
    resources=_resources,
    limits={"time": "-W {}", "partition": "-q {}", "account": "-P {}"},
    clock=_clock,
    submit="bsub",
    reads_stdin=True,
    answer=re.compile(r"Job <(\d+)>"),
    cancel=("bkill", "-J", "{name}", "0"),
    listing=(
        *("sh", "-c"),
        f"bjobs -noheader -o jobid -J {{name}} 2>&1 | grep -Ev '{_NONE}'; true",
    ),
    look=_look,
    prepare=lambda _: [FORWARD, counted("LSB_DJOB_HOSTFILE")],
    mpi_arguments=f'--hostfile "$TNT_FOLDER/hosts" --prtemca plm_ssh_agent blaunch {FORWARDED}',
    nodefile="LSB_DJOB_HOSTFILE",
    tasks="LSB_DJOB_NUMPROC",
    writes_at_once=False,
)
