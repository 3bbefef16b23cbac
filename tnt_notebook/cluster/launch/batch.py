"""Batch systems as values: what their scripts ask for, and how they are asked about a job."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.errors import ClusterError

_ASK_S = 30.0
_SUBMIT_S = 120.0
#: Seconds before the end of a job when its ranks are told.
NOTICE_S = 120
#: Variables of the notebook that mean nothing on a node, or are nobody's business there: the
#: session's, the batch system's own, and the tokens of Jupyter and JupyterHub.
_NOT_INHERITED = re.compile(
    r"(SLURM|SBATCH|SRUN|PBS|LSB|LSF|LS|SGE|PE|OMPI|PMIX?|PRTE|MPI|JUPYTER|JUPYTERHUB|JPY|KERNEL|XDG|DBUS|SSH|"
    r"BASH_FUNC|TNT_RUN|NOTIFY|INVOCATION|JOURNAL)_.*"
    r"|BASH_FUNC.*|TMPDIR|TMP|TEMP|HOSTNAME|DISPLAY|PWD|OLDPWD|SHLVL|_|JOB_ID|JOB_NAME|NSLOTS|"
    r"NHOSTS|QUEUE|ENVIRONMENT|TERM|STY|TMUX.*|WINDOWID|GIT_ASKPASS|VSCODE_.*|"
    r"CONFIGPROXY_AUTH_TOKEN|[A-Z]+_VISIBLE_DEVICES"
)
#: But for what leads to the batch system itself.
_SITES = ("SLURM_CONF", "PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC", "PBS_HOME",
          "LSF_ENVDIR", "LSF_SERVERDIR", "LSF_BINDIR", "LSF_LIBDIR", "SGE_ROOT", "SGE_CELL",
          "SGE_CLUSTER_NAME", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What a batch system says of a job.

    Attributes:
        state: ``pending``, ``running``, ``ending`` while the system ends what is left of it,
            ``ended``, or ``unknown`` where it could not be asked.
        why: of a pending job what it waits for; of one that ends, how; else what is wrong.
        more: when it is expected to begin, its place in the queue, or the time that is left.
    """

    state: Literal["pending", "running", "ending", "ended", "unknown"]
    why: str = ""
    more: str = ""

    def __str__(self) -> str:
        states = {"ended": "has ended", "unknown": "is in an unknown state"}
        said = states.get(self.state, f"is {self.state}")
        return (
            said + (f": {self.why}" if self.why else "") + (f" ({self.more})" if self.more else "")
        )


def clock(seconds: int) -> str:
    """A time limit as hours:minutes:seconds."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


@dataclass(frozen=True)
class System:
    """A batch system: a template of its scripts, and commands to submit, look at and cancel a job.

    In commands and options ``{name}`` stands for the job's name.

    Attributes:
        title: as people call it.
        variable: of the environment, which says that this is inside of an allocation.
        directive: what a line of the script's head begins with.
        head: options of every job, with its ``{output}`` file, and ``{notice}``: seconds before its
            end. The system must not run the job a second time: that is for the notebook to ask for.
        resources: options that ask for the ranks of a request, their nodes, cores and GPUs.
        limits: options for ``time``, ``memory``, ``partition`` and ``account``, where a request has
            them.
        submit: the command; the script's path follows, or the script comes by its standard input.
        answer: finds the job's id in what that prints, beside what a site may have to say.
        cancel: the command that cancels the job.
        listing: a command that prints something as long as there is the job, or where that cannot
            be said.
        look: what is known of a job, by its id.
        prepare: lines of the script before Open MPI's mpiexec; MPICH's finds out itself.
        mpi_arguments: of Open MPI's mpiexec in the script, as shell text.
        nodefile: a variable that names a file with the hosts of an allocation, a line for each.
        nodes: hosts that may run ranks, as far as they are known, where no file has them.
        tasks: a variable with the number of ranks that an allocation is for; without one, the file
            of hosts has a line for each.
        clock: writes a time limit, in seconds.
        check: raises a ClusterError where it cannot be asked for something.
        writes_at_once: whether the job's output file has what the job writes before it ends.
        ask: a command that sends SIGTERM to the script of the job if that runs, and to no other
            process of it; it fails where none runs. Empty where there is no such command.
        each_node: a command that runs another one once on each node of the job that it is in; empty
            where that is left to MPI.
        warns: whether it sends the script SIGUSR1 before the end of a job, as the head asks.
    """

    title: str
    variable: str
    directive: str
    head: tuple[str, ...]
    resources: Callable[[Request], list[str]]
    limits: Mapping[str, str]
    submit: str
    answer: re.Pattern[str]
    cancel: tuple[str, ...]
    listing: tuple[str, ...]
    look: Callable[[str], Job]
    prepare: Callable[[Request], list[str]]
    mpi_arguments: str
    nodefile: str | None = None
    nodes: Callable[[], list[str]] | None = None
    tasks: str | None = None
    clock: Callable[[int], str] = clock
    check: Callable[[Request], None] = lambda _: None
    reads_stdin: bool = False
    writes_at_once: bool = True
    ask: tuple[str, ...] = ()
    each_node: tuple[str, ...] = ()
    warns: bool = False


def directives(system: System, request: Request, name: str, output: str) -> list[str]:
    """The head of a script: what is asked for, as the system reads it."""
    asked = {"time": request.time_s and system.clock(request.time_s)}
    asked |= {what: getattr(request, what) for what in ("memory", "partition", "account")}
    said = {"name": name, "output": shlex.quote(output), "notice": NOTICE_S}
    options = [
        *(option.format(**said) for option in system.head),
        *system.resources(request),
        *(system.limits[what].format(value) for what, value in asked.items() if value),
        *request.extra,
    ]
    return [f"{system.directive} {option}" for option in options]


def named(command: tuple[str, ...], name: str) -> list[str]:
    """A command of a system for the job of that name."""
    return [word.format(name=name) for word in command]


def submit(system: System, script: Path) -> str:
    """Submits a script; returns the job's id.

    Raises:
        ClusterError: the system refuses it, or does not answer; with what it says.
    """
    command = [system.submit, *([] if system.reads_stdin else [str(script)])]
    try:
        with open(script if system.reads_stdin else os.devnull) as stdin:
            run = subprocess.run(
                command, stdin=stdin, capture_output=True, text=True, errors="replace",
                timeout=_SUBMIT_S, cwd=script.parent, env=inheritable(os.environ),
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{command[0]} did not answer within {_SUBMIT_S:.0f} s. Is the batch system running?"
        ) from None
    said = "\n".join(filter(None, (run.stdout.strip(), run.stderr.strip())))
    if run.returncode != 0:
        raise ClusterError(f"{command[0]} refused the job (exit {run.returncode}):\n{said}")
    found = system.answer.search(run.stdout)
    if found is None:
        raise ClusterError(f"{command[0]} named no job:\n{said}")
    return found[1]


def job_name(cluster_id: str) -> str:
    """What the job of a cluster is called: it can be cancelled by that, whatever happened to the
    one who submitted it."""
    return f"tnt-{cluster_id}"


def asked(command: list[str]) -> str:
    """What a command of a batch system prints; with its errors where it fails."""
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_ASK_S, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]}: {error}"
    return run.stdout if run.returncode == 0 else f"{run.stdout}\n{run.stderr}".strip()


def silent(said: str) -> Job:
    """A job of which the batch system has not spoken, but of something else."""
    return Job("unknown", " ".join(said.split())[:200] or "no answer")


def hosts_in(variable: str | None, environment: Mapping[str, str]) -> list[str]:
    """The hosts, one for each line, in the file that a variable of an allocation names; empty
    outside of one.
    """
    try:
        lines = Path(environment[variable or ""]).read_text(errors="replace").splitlines()
    except (KeyError, OSError):
        return []
    return [line.split()[0] for line in lines if line.strip()]


def inheritable(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the notebook's environment that means something in a job."""
    return {
        name: value
        for name, value in environment.items()
        if name in _SITES or not _NOT_INHERITED.fullmatch(name)
    }
