"""Who the benchmarks compare with: what each needs, where it is found, and how its ranks start.

    python -m tests.benchmarks.contestants install FOLDER      # a venv for each, by pip
    TNT_BENCH_VENVS=FOLDER make bench-comm

What is not in the folder is left out of a benchmark, which says so.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.rank_pool import mpiexec

#: The environment variable that names the folder.
FOLDER = "TNT_BENCH_VENVS"

_CPU_TORCH = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Runtime:
    """A Python in which a contestant's ranks run.

    Attributes:
        name: of its venv in the folder.
        launch: the commands that start so many ranks of a module, given with its arguments, with a
            Python.
        packages: for pip; none: this project's own environment.
        pip: more arguments for pip.
    """

    name: str
    launch: Callable[[Path, int, Sequence[str]], list[list[str]]]
    packages: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()


def _under_mpiexec(python: Path, ranks: int, module: Sequence[str]) -> list[list[str]]:
    return [[*mpiexec(ranks), str(python), "-m", *module]]


def _under_hydra(python: Path, ranks: int, module: Sequence[str]) -> list[list[str]]:
    launcher = str(python.with_name("mpiexec"))
    # The benchmarks bind ranks themselves, all contestants alike.
    return [["env", "I_MPI_PIN=0", launcher, "-n", str(ranks), str(python), "-m", *module]]


def _by_itself(python: Path, ranks: int, module: Sequence[str]) -> list[list[str]]:
    return [["env", f"TNT_BENCH_RANK={rank}", str(python), "-m", *module] for rank in range(ranks)]


OPEN_MPI = Runtime("open mpi", _under_mpiexec)
PROCESSES = Runtime("processes", _by_itself)
MPICH = Runtime("mpich", _under_hydra, ("mpich", "mpi4py", "numpy"))
INTEL_MPI = Runtime("intel-mpi", _under_hydra, ("impi-rt", "mpi4py", "numpy"))
TORCH = Runtime(
    "torch", _by_itself, ("torch", "numpy"), ("--extra-index-url", _CPU_TORCH, "--retries", "1")
)
TF_KERAS = Runtime("tf-keras", _by_itself, ("tensorflow-cpu", "tf_keras"))

TO_INSTALL = (MPICH, INTEL_MPI, TORCH, TF_KERAS)


def commands(runtime: Runtime, ranks: int, function: str, *words: str) -> list[list[str]]:
    """What starts so many ranks of a function of these benchmarks, ``module:function``, which gets
    its seat and the words.

    Raises:
        FileNotFoundError: the runtime is not installed; says what to do about it.
    """
    python = Path(sys.executable)
    if runtime.packages:
        where = os.environ.get(FOLDER)
        if where is None:
            install = "python -m tests.benchmarks.contestants install FOLDER"
            raise FileNotFoundError(f"{FOLDER} is not set (`{install}` makes what belongs there)")
        python = Path(where).absolute() / runtime.name / "bin" / "python"
        if not python.exists():
            raise FileNotFoundError(f"there is no venv {runtime.name} in {where}")
    seat = ("tests.benchmarks.seat", f"tests.benchmarks.{function}", *words)
    return runtime.launch(python, ranks, seat)


def install(folder: Path) -> None:
    """Makes the venvs; what cannot be installed into one does not keep the others."""
    for runtime in TO_INSTALL:
        print(f"{runtime.name}: {' '.join(runtime.packages)}", flush=True)
        target = folder / runtime.name
        venv.create(target, with_pip=True)
        pip = [target / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *runtime.pip, *runtime.packages])


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "install":
        sys.exit(__doc__)
    install(Path(sys.argv[2]))
