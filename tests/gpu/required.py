"""Says what this machine and this Python lack for the tests on a GPU. Run by ``make test-gpu``.

With ``driver`` as its argument it asks only whether there is a GPU, in any Python 3.
"""

import ctypes
import importlib.util
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Modules, and what pip calls them.
ALIKE = ("anywidget", "ipykernel", "ipyparallel", "ipywidgets", "keras", "mpi4py", "numpy",
         "platformdirs", "plotly", "psutil", "pytest", "rich")  # fmt: skip
MODULES = {
    **{name: name for name in ALIKE},
    "pynvml": "nvidia-ml-py",
    "pytest_timeout": "pytest-timeout",
    "tensorflow": "tensorflow[and-cuda]",
}

INSTALL = """\
`make TENSORFLOW=cuda setup` installs all of it into .venv. For another Python with TensorFlow:
    PYTHON -m pip install '.[cuda,mpi,test]'
or, without a network, if it has the rest and scikit-build-core, nanobind, CMake and ninja:
    PYTHON -m pip install --no-deps --no-build-isolation --editable .
and then: make test-gpu GPU_PYTHON=PYTHON"""


def no_gpu() -> str:
    """Why no NVIDIA GPU can be used here, as a sentence; empty if one can. Asks the driver, as
    TensorFlow does."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "There is no NVIDIA driver on this machine: libcuda.so.1 cannot be loaded."
    count, text = ctypes.c_int(), ctypes.c_char_p()
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if status:
        cuda.cuGetErrorString(status, ctypes.byref(text))
        why = (text.value or b"an error without a name").decode()
        return f"The NVIDIA driver has no GPU to offer: {why} (error {status})."
    return "" if count.value else "The NVIDIA driver sees no GPU."


def lacking() -> list[str]:
    """What this Python lacks, a sentence each."""
    absent = [pip for module, pip in MODULES.items() if importlib.util.find_spec(module) is None]
    found = [f"It lacks {', '.join(absent)}."] if absent else []
    beside = Path(sys.executable).with_name("mpiexec")
    if not beside.exists() and shutil.which("mpiexec") is None:
        found.append("There is no mpiexec beside it or on PATH.")
    if MODULES["tensorflow"] not in absent:
        found += _tensorflow_lacks()
    if not absent:
        found += _build_lacks()
    return found


def _build_lacks() -> list[str]:
    try:
        import tnt_notebook.comm._kernels  # noqa: F401
    except ImportError as error:
        return [f"tnt_notebook is not built for it: {error}."]
    return []


def _tensorflow_lacks() -> list[str]:
    import tensorflow as tf

    version = f"Its TensorFlow {tf.__version__}"
    if not tf.test.is_built_with_cuda():
        return [f"{version} is built for CPUs only."]
    if not tf.config.list_physical_devices("GPU"):
        return [
            f"{version} is built for CUDA {tf.sysconfig.get_build_info().get('cuda_version')} and "
            "does not see the GPU. Which library it misses is in what it wrote above."
        ]
    return []


def problem(driver_only: bool = False) -> str:
    """What is in the way of the tests, and what to do; empty if nothing is."""
    if why := no_gpu():
        return f"{why} The tests of tests/gpu need an NVIDIA GPU, and nothing of them has run."
    sentences = [] if driver_only else lacking()
    if not sentences:
        return ""
    return "\n".join([f"{sys.executable} cannot run the tests on a GPU.", *sentences, INSTALL])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(problem(driver_only=sys.argv[1:] == ["driver"]) or None)
