"""Grid Engine: Sun's, Univa's, Altair's, and the free ones."""

from __future__ import annotations

import re

from tnt_notebook.cluster.launch.batch import Job, System, asked, silent
from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.cluster.launch.script import FORWARD, FORWARDED
from tnt_notebook.errors import ClusterError

_UNANSWERED = "qstat was not answered"


def _resources(request: Request) -> list[str]:
    # A site names its parallel environments; mpi is what most call it. --extra "-pe ..." says more.
    slots = request.ranks * (request.cores or 1)
    return [
        *([] if _names_environment(request) else [f"-pe mpi {slots}"]),
        *([f"-l gpu={request.gpus}"] if request.gpus else []),
    ]


def _check(request: Request) -> None:
    given = {"--per-node": request.per_node, "--nodes": request.nodes}
    wrong = [flag for flag, number in given.items() if number is not None]
    if wrong and not _names_environment(request):
        raise ClusterError(
            f"{wrong[0]}: in Grid Engine a parallel environment decides how ranks spread over "
            'nodes. Name one: --extra "-pe NAME SLOTS" (qconf -spl lists them).'
        )


def _names_environment(request: Request) -> bool:
    return any(option.startswith("-pe ") for option in request.extra)


def _hosts(request: Request) -> str:
    """Writes a hostfile for Open MPI: Grid Engine counts slots, which are cores."""
    cores = request.cores or 1
    ranks = "$2" if cores == 1 else f"int($2 / {cores})"
    room = f"{ranks} > 0 " if cores > 1 else ""
    return f"""awk '{room}{{print $1" slots="{ranks}}}' "$PE_HOSTFILE" > "$TNT_FOLDER/hosts\""""


def _look(job: str) -> Job:
    # qstat -j says nothing of a job that has ended, and its list nothing of why one waits.
    listed = parsed(asked(["qstat"]), job)
    if listed.state == "ended":
        return ended(asked(["qacct", "-j", job]))
    if listed.state == "pending":
        return Job("pending", reason(asked(["qstat", "-j", job])) or listed.why)
    return listed


def parsed(said: str, job: str) -> Job:
    """A job in the list that ``qstat`` prints."""
    for line in said.splitlines():
        words = line.split()
        if len(words) > 4 and words[0] == job:
            state = words[4]
            if "q" in state:  # qw, hqw, Rq, Eqw
                held, stuck = "h" in state, "E" in state
                why = "it is in error" if stuck else "it is held" if held else "it is in the queue"
                return Job("pending", why)
            if "d" in state:
                return Job("ending", "it was cancelled")
            return Job("running", "it is suspended" if set(state) & set("sST") else "")
    if said.strip() and not said.lstrip().startswith("job-ID"):
        return silent(said)
    return Job("ended")


def reason(said: str) -> str:
    """Why a job waits, as ``qstat -j`` describes it; "" where it says nothing."""
    fields = re.findall(r"^(error reason\s+\d+|scheduling info):[ \t]+(.+)$", said, re.MULTILINE)
    why = {name.partition(" ")[0]: text.strip() for name, text in reversed(fields)}
    return f"it is in error: {why['error']}" if "error" in why else why.get("scheduling", "")


def ended(said: str) -> Job:
    """A job that has ended, as ``qacct -j`` describes it."""
    fields = dict(re.findall(r"^(\w+)[ \t]+(\S.*?)[ \t]*$", said, re.MULTILINE))
    failed = fields.get("failed", "0").partition(":")
    exits = fields.get("exit_status", "").split()
    if "exit_status" not in fields:
        return Job("ended", "Grid Engine has not said why")
    code = exits[0]
    number = failed[0].strip()
    if number == "37":  # one of the limits that are enforced; the one that is asked for is time
        return Job("ended", "its time was over", failed[2].strip())
    if number == "100":  # it ran, and a signal ended it
        killed = "it was cancelled" if code == "137" else f"exit status {code}"
        return Job("ended", killed, failed[2].strip())
    if number != "0":
        return Job("ended", failed[2].strip() or f"failed {number}")
    return Job("ended", "its processes ended" if code == "0" else f"exit status {code}")


SYSTEM = System(
    title="Grid Engine",
    variable="PE_HOSTFILE",
    directive="#$",
    head=("-N {name}", "-S /bin/bash", "-j y", "-o {output}", "-cwd", "-r n"),
    resources=_resources,
    limits={"time": "-l h_rt={}", "partition": "-q {}", "account": "-A {}"},
    submit="qsub",
    answer=re.compile(r"[Yy]our job (\d+)"),
    cancel=("qdel", "{name}"),
    listing=(  # full names come with -r only
        *("sh", "-c"),
        f"(qstat -r || echo {_UNANSWERED}) | grep -F -e {{name}} -e '{_UNANSWERED}'; true",
    ),
    look=_look,
    prepare=lambda request: [FORWARD, _hosts(request)],
    # Open MPI finds qrsh by itself, where it sees that it is in such a job.
    mpi_arguments=f'--hostfile "$TNT_FOLDER/hosts" {FORWARDED}',
    nodefile="PE_HOSTFILE",
    tasks="NSLOTS",
    check=_check,
)
