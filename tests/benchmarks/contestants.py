"""Who the benchmarks compare with: what each needs, where it is found, and how its ranks start.

    python -m tests.benchmarks.contestants install FOLDER      # a venv for each, by pip
    TNT_BENCH_VENVS=FOLDER make bench-comm

What is not in the folder is left out of a benchmark, which says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.job import Command
from tests.support.rank_pool import mpiexec

#: The environment variable that names the folder.
FOLDER = "TNT_BENCH_VENVS"

_CPU_TORCH = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Runtime:
    """A Python in which a contestant's ranks run.

    Attributes:
        name: of its venv in the folder.
        launch: what starts so many ranks of a module, given with its arguments, with a Python.
        packages: for pip; none: this project's own environment.
        pip: more arguments for pip.
    """

    name: str
    launch: Callable[[Path, int, Sequence[str]], list[Command]]
    packages: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()


def _under_mpiexec(python: Path, ranks: int, module: Sequence[str]) -> list[Command]:
    return [Command((*mpiexec(ranks), str(python), "-m", *module))]


def _under_hydra(python: Path, ranks: int, module: Sequence[str]) -> list[Command]:
    launcher = str(python.with_name("mpiexec"))
    # The benchmarks bind ranks themselves, all contestants alike.
    environment = {"I_MPI_PIN": "0"}
    return [Command((launcher, "-n", str(ranks), str(python), "-m", *module), environment)]


def _by_itself(python: Path, ranks: int, module: Sequence[str]) -> list[Command]:
    words = (str(python), "-m", *module)
    return [Command(words, {"TNT_BENCH_RANK": str(rank)}) for rank in range(ranks)]


OPEN_MPI = Runtime("open mpi", _under_mpiexec)
PROCESSES = Runtime("processes", _by_itself)
MPICH = Runtime("mpich", _under_hydra, ("mpich", "mpi4py", "numpy"))
INTEL_MPI = Runtime("intel-mpi", _under_hydra, ("impi-rt", "mpi4py", "numpy"))
TORCH = Runtime(
    "torch", _by_itself, ("torch", "numpy"), ("--extra-index-url", _CPU_TORCH, "--retries", "1")
)
TF_KERAS = Runtime("tf-keras", _by_itself, ("tensorflow-cpu", "tf_keras"))

TO_INSTALL = (MPICH, INTEL_MPI, TORCH, TF_KERAS)


def python_of(runtime: Runtime) -> Path | None:
    """Its interpreter, or ``None`` where it is not installed."""
    if not runtime.packages:
        return Path(sys.executable)
    python = Path(os.environ.get(FOLDER, "")).absolute() / runtime.name / "bin" / "python"
    return python if FOLDER in os.environ and python.exists() else None


def commands(runtime: Runtime, ranks: int, module: Sequence[str]) -> list[Command]:
    """What starts so many ranks of a module, given with its arguments.

    Raises:
        FileNotFoundError: the runtime is not installed; says what to do about it.
    """
    python = python_of(runtime)
    if python is not None:
        return runtime.launch(python, ranks, module)
    where = os.environ.get(FOLDER)
    if where is not None:
        raise FileNotFoundError(f"there is no venv {runtime.name} in {where}")
    install = "python -m tests.benchmarks.contestants install FOLDER"
    raise FileNotFoundError(f"{FOLDER} is not set (`{install}` makes what belongs there)")


def install(folder: Path) -> None:
    """Makes the venvs that are not there yet; one that cannot be made does not keep the others."""
    for runtime in TO_INSTALL:
        target = folder / runtime.name
        if (target / "complete").exists():
            continue
        print(f"{runtime.name}: {' '.join(runtime.packages)}", flush=True)
        venv.create(target, with_pip=True, clear=True)
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        if subprocess.run([*pip, *runtime.pip, *runtime.packages]).returncode == 0:
            (target / "complete").touch()
        else:
            print(f"{runtime.name} could not be installed", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "install":
        sys.exit(__doc__)
    install(Path(sys.argv[2]))
