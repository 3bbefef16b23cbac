"""The C parts of the benchmarks, compiled when a benchmark runs."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def library() -> Iterator[Path]:
    """Compiles them; the file is gone after the ``with`` block."""
    with tempfile.TemporaryDirectory(prefix="tnt-benchmark-") as folder:
        yield compiled(Path(folder))


def compiled(folder: Path) -> Path:
    """Compiles them for this machine.

    Args:
        folder: where the library goes.

    Raises:
        RuntimeError: no C compiler was found, or it failed; with what it said.
    """
    made = folder / "benchmarks.so"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("the benchmarks need a C compiler (cc) on PATH")
    sources = [str(source) for source in sorted(Path(__file__).parent.glob("*.c"))]
    flags = ["-O3", "-march=native", "-shared", "-fPIC", "-pthread"]
    run = subprocess.run(
        [compiler, *flags, *sources, "-o", str(made)], capture_output=True, text=True
    )
    if run.returncode:
        raise RuntimeError(f"the C parts of the benchmarks do not compile:\n{run.stderr}")
    return made


def loaded(library: Path) -> ctypes.CDLL:
    """The library, with the types of what it gives and takes."""
    native = ctypes.CDLL(str(library))
    number, size, address = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
    native.cache_line_round_trip.argtypes = [number, number]
    native.cache_line_round_trip.restype = ctypes.c_double
    native.meet_within.argtypes = [address, number, number, number, ctypes.c_double, address]
    native.met.argtypes = [address, number, number, ctypes.c_double, ctypes.c_uint]
    native.floor_bytes.argtypes = [number, size]
    native.floor_bytes.restype = size
    native.floor_vector.argtypes = [address, number, number, size]
    native.floor_vector.restype = address
    native.floor_measure.argtypes = [
        *(address, number, number, number, size, number),
        *(address, address, size, number, address),
    ]
    native.floor_measure.restype = None
    return native
