"""What of the notebook's environment goes into a job."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Variables of the notebook that mean nothing on a node, or are nobody's business there: the
#: session's, the batch system's own, and the tokens of a JupyterHub.
_NOT_INHERITED = re.compile(
    r"(SLURM|SBATCH|SRUN|PBS|LSB|LSF|LS|SGE|PE|OMPI|PMIX?|PRTE|MPI|JUPYTERHUB|JPY|KERNEL|XDG|DBUS|SSH|"
    r"BASH_FUNC|TNT_RUN|NOTIFY|INVOCATION|JOURNAL)_.*"
    r"|BASH_FUNC.*|TMPDIR|TMP|TEMP|HOSTNAME|DISPLAY|PWD|OLDPWD|SHLVL|_|JOB_ID|JOB_NAME|NSLOTS|"
    r"NHOSTS|QUEUE|ENVIRONMENT|TERM|STY|TMUX.*|WINDOWID|GIT_ASKPASS|VSCODE_.*"
)
#: But for what leads to the batch system itself.
_SITES = ("SLURM_CONF", "PBS_CONF_FILE", "PBS_SERVER", "PBS_EXEC", "LSF_ENVDIR", "LSF_SERVERDIR",
          "LSF_BINDIR", "LSF_LIBDIR", "SGE_ROOT", "SGE_CELL", "SGE_CLUSTER_NAME")  # fmt: skip


def inheritable(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the notebook's environment that means something in a job."""
    return {
        name: value
        for name, value in environment.items()
        if name in _SITES or not _NOT_INHERITED.fullmatch(name)
    }
