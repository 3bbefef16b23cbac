"""The C parts of the benchmarks, compiled when a benchmark runs."""

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def library() -> Path:
    """Compiles them for this machine; the file is gone with this process.

    Raises:
        RuntimeError: no C compiler was found, or it failed; with what it said.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("the benchmarks need a C compiler (cc) on PATH")
    folder = tempfile.TemporaryDirectory(prefix="tnt-benchmark-")
    atexit.register(folder.cleanup)
    made = Path(folder.name) / "benchmarks.so"
    flags = ["-O3", "-march=native", "-shared", "-fPIC", "-pthread"]
    command = [compiler, *flags, Path(__file__).with_suffix(".c"), "-o", made]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"the C parts of the benchmarks do not compile:\n{run.stderr}")
    return made


def loaded(library: Path) -> ctypes.CDLL:
    """The library, with the types of what it gives and takes."""
    native = ctypes.CDLL(str(library))
    number, size, address, real = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_double
    of_floor = address, number, number, number, size, number, address, address, size, number
    signatures = {
        "cache_line_round_trip": (real, number),
        "meet_within": (number, address, number, number, number, real, address),
        "all_there": (number, address, number, number, real, ctypes.c_uint),
        "floor_bytes": (size, number, size),
        "floor_vector": (address, address, number, number, size),
        "floor_measure": (None, *of_floor, address),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(native, name)
        function.restype, function.argtypes = result, arguments
    return native
