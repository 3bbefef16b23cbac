"""MPI jobs of their own, for what the shared job of the `ranks` fixture would not survive."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.rank_pool import mpiexec, rank_environment


def start(
    folder: Path,
    n: int,
    source: str,
    *arguments: object,
    options: Sequence[str] = (),
    **environment: str,
) -> subprocess.Popen[str]:
    """Starts a script on n ranks, in a session of its own.

    Args:
        source: the script; it lies in the folder then.
        arguments: for the script.
        options: for mpiexec.
        environment: variables of the ranks, beside those that ranks of tests have anyway.
    """
    script = folder / "script.py"
    script.write_text(source)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    of_tests = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"}
    return subprocess.Popen(
        [*mpiexec(n), *options, sys.executable, str(script), *map(str, arguments)],
        env={**rank_environment(), **of_tests, "TMPDIR": str(temporary), **environment},
        cwd=folder, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def run(folder: Path, n: int, source: str, *arguments: object, **more: Any) -> tuple[int, str]:
    """As `start`, to its end: its status, and what it has printed."""
    job = start(folder, n, source, *arguments, **more)
    output = output_of(job, 200)
    return job.returncode, output


def output_of(job: subprocess.Popen[str], timeout: float) -> str:
    """What the job has printed when it has ended; kills it if it does not end in time."""
    try:
        return job.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the job did not end; it has printed:\n{killed(job)}") from None


def left(folder: Path) -> list[Path | psutil.Process]:
    """Temporary files and processes of a job that are still there."""
    files = [path for path in (folder / "tmp").rglob("*") if not path.is_dir()]
    return files + [process for process in psutil.process_iter() if runs(process.pid, folder)]


def runs(pid: int, folder: Path) -> bool:
    """Whether that process is a rank of the job."""
    try:
        return str(folder / "script.py") in psutil.Process(pid).cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def killed(job: subprocess.Popen[str]) -> str:
    """Kills a job; gives what it has printed, and the ranks' stacks."""
    ranks = psutil.Process(job.pid).children(recursive=True)
    for process in ranks:
        process.send_signal(signal.SIGABRT)  # they write where they are as they end
    psutil.wait_procs(ranks, timeout=2)
    os.killpg(job.pid, signal.SIGKILL)
    return job.communicate()[0]
