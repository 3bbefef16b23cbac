"""Shell text: the batch script, what it sources, and what Open MPI needs around it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from tnt_notebook.cluster.launch.batch import NOTICE_S, System, directives, inheritable
from tnt_notebook.cluster.launch.options import Request

#: Ranks on other hosts see what their daemon sees there, which reached by ssh or the like is next
#: to nothing. So they are told all that is exported here, but for what is of one host only, and the
#: tokens of Jupyter.
FORWARD = (
    "forward=$(compgen -e | grep -Ev '^(_|PWD|OLDPWD|SHLVL|HOSTNAME|TMPDIR|TMP|TEMP|DISPLAY|"
    "[A-Z]+_VISIBLE_DEVICES|CONFIGPROXY_AUTH_TOKEN|(PBS|LSB|LSF|SGE|PE|SSH|XDG|PMIX|PRTE|JUPYTER|"
    "JUPYTERHUB|JPY)_.*)$' | sed 's/^/-x /')"
)
FORWARDED = "$forward"
#: Engines that have ended can be started again in the same job, if the notebook asks for it soon.
#: When the job's time is nearly over, a signal tells the script, and a file the ranks. When the job
#: is to end, the script cleans up on its hosts first.
_ROUNDS = """\
trap 'touch "$TNT_FOLDER/time-is-up"' USR1
trap 'ending=1; kill $ranks 2> /dev/null' TERM
for round in $(seq 1000); do
  {mpiexec} &
  ranks=$!
  while :; do
    wait $ranks
    code=$?
    kill -0 $ranks 2> /dev/null || break
  done
  echo $code > "$TNT_FOLDER/ended-$round"
  {sweep}
  for wait in $(seq 120); do
    [ "$ending" ] && exit 0
    [ -e "$TNT_FOLDER/again-$round" ] && continue 2
    sleep 0.5
  done
  exit $code
done
"""


def counted(variable: str) -> str:
    """Writes a hostfile for Open MPI from one with a line for each rank: of a host that comes once
    in such a file, Open MPI would take all cores.
    """
    count = '!n[$1]++ {h[++k] = $1} END {for (i = 1; i <= k; i++) print h[i]" slots="n[h[i]]}'
    return f'awk \'{count}\' "${variable}" > "$TNT_FOLDER/hosts"'


def script(
    system: System,
    asked: Request,
    name: str,
    output: str,
    environment: str,
    command: list[str],
    sweep: list[str],
) -> str:
    """A batch script.

    Args:
        name: of the job.
        output: the file for what the job writes.
        environment: the file to source first.
        command: mpiexec and all that follows; ``{mpi}`` stands for the system's own arguments.
        sweep: what is run after it, written likewise.
    """
    rounds = _ROUNDS.format(mpiexec=line(system, command), sweep=line(system, sweep) or ":")
    own = shlex.quote(output)
    lines = [
        "#!/bin/bash" + (" -l" if asked.modules else ""),  # a login shell knows modules
        *directives(system, asked, name, output if system.writes_at_once else job_log(output)),
        "umask 077",
        *([] if system.writes_at_once else [f"exec >> {own} 2>&1"]),
        f". {shlex.quote(environment)}",
        # Paths in cells mean what they mean in the notebook, where nodes see its folder.
        f"cd {shlex.quote(os.getcwd())} 2> /dev/null || cd",
        *(f"module load {shlex.quote(module)} || exit" for module in asked.modules),
        *system.prepare(asked),
        *_timer(system, asked),
        *rounds.splitlines(),
    ]
    return "\n".join(lines) + "\n"


def line(system: System, command: list[str]) -> str:
    """A command in a script; ``{mpi}`` stands for what the system tells mpiexec."""
    words = [system.mpi_arguments if word == "{mpi}" else shlex.quote(word) for word in command]
    return " ".join(filter(None, words))


def _timer(system: System, asked: Request) -> list[str]:
    """For systems that send no signal before the end of a job."""
    if system.warns or asked.time_s is None:
        return []
    return [f"(sleep {max(1, asked.time_s - NOTICE_S)}; kill -USR1 $$) &"]


def job_log(output: str) -> str:
    """The file for what a batch system writes at the end of a job, beside what the job wrote."""
    return str(Path(output).with_name("job.log"))


def environment_script(own: Mapping[str, str], inherited: Mapping[str, str]) -> str:
    """What the script sources: the notebook's environment, so that the same programs are found on
    the nodes, and the cluster's own variables.
    """
    kept = inheritable(inherited) | dict(own)
    named = {k: v for k, v in kept.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", k)}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(named.items()))
