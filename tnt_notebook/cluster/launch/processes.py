"""ipyparallel's launchers, without what they do to the output, and with their errors whole."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from ipyparallel.cluster.launcher import (
    BaseLauncher,
    LocalControllerLauncher,
    LSFEngineSetLauncher,
    MPIEngineSetLauncher,
    PBSEngineSetLauncher,
    SGEEngineSetLauncher,
    SlurmEngineSetLauncher,
)
from traitlets import Unicode

from tnt_notebook.cluster.launch.inherited import inheritable
from tnt_notebook.errors import ClusterError

_SUBMIT_S = 120.0


class _KeepsOutput(BaseLauncher):
    def _log_output(self, stop_data: Any = None) -> None:
        """ipyparallel removes a process's output when it ends; the run folder keeps it."""


class Controller(_KeepsOutput, LocalControllerLauncher):
    """The controller, on this machine."""


class MpiEngines(_KeepsOutput, MPIEngineSetLauncher):
    """Engines started by one mpiexec that runs on this machine."""


class _Submits(_KeepsOutput):
    """Submits a script that was written before: one job, and not one for each engine.

    ``script`` is its path; LSF reads it from stdin. ``answer`` finds the job's id in what the
    command prints, beside what a site may have to say.
    """

    script = Unicode(config=True)
    answer = re.compile("")
    reads_stdin = False

    def start(self, n: int = 1) -> str:
        """Submits the script, and returns the job's id."""
        command = list(self.submit_command) + ([] if self.reads_stdin else [self.script])
        try:
            with open(self.script if self.reads_stdin else os.devnull) as stdin:
                run = subprocess.run(
                    command, stdin=stdin, capture_output=True, text=True, errors="replace",
                    timeout=_SUBMIT_S, cwd=Path(self.script).parent, env=inheritable(os.environ),
                )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"{command[0]} did not answer within {_SUBMIT_S:.0f} s. Is the batch system well?"
            ) from None
        said = "\n".join(filter(None, (run.stdout.strip(), run.stderr.strip())))
        if run.returncode != 0:
            raise ClusterError(f"{command[0]} refused the job (exit {run.returncode}):\n{said}")
        found = self.answer.search(run.stdout)
        if found is None:
            raise ClusterError(f"{command[0]} named no job:\n{said}")
        self.job_id = found[1]
        self.notify_start(self.job_id)
        return str(self.job_id)


class SlurmJob(_Submits, SlurmEngineSetLauncher):
    """Engines of a Slurm job."""

    answer = re.compile(r"Submitted batch job (\d+)")


class PbsJob(_Submits, PBSEngineSetLauncher):
    """Engines of a PBS job."""

    answer = re.compile(r"^(\d+)(?:\.\S+)?\s*$", re.MULTILINE)


class LsfJob(_Submits, LSFEngineSetLauncher):
    """Engines of an LSF job."""

    answer = re.compile(r"Job <(\d+)>")
    reads_stdin = True


class SgeJob(_Submits, SGEEngineSetLauncher):
    """Engines of a Grid Engine job."""

    answer = re.compile(r"[Yy]our job (\d+)")
