"""Loads what a fit needs before there is one: TensorFlow and Keras take seconds.

It begins when all ranks answer, in a thread, while cells run. A cell that imports what is not
loaded yet waits for its end, and so do a fit and a fork. What goes wrong is raised by the fit, as
it would be without the thread. An interrupt ends the wait, and leaves nothing half loaded behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from IPython import get_ipython

from tnt_notebook import comm, control_group
from tnt_notebook.engine import import_gate
from tnt_notebook.sizes import size

#: With it come Keras, TensorFlow, and all of a fit but ``parallel.training.scope``: that tries an
#: op, for which TensorFlow takes its devices, and can be configured no more.
FIT = "tnt_notebook.parallel.training.run"

_BYTES = 300 << 20  # that a rank has for itself once it is loaded; what ranks share comes on top
#: Variables that these libraries may read while they are loaded.
_READ = ("KERAS_", "TF_")

_ended = threading.Event()
_ended.set()
_error: BaseException | None = None
_variables: dict[str, str] = {}


def begin(module: str = FIT) -> bool:
    """Begins to load a module; returns at once. Where memory is short, it is left to the fit.

    Returns:
        Whether it has begun; not a second time.
    """
    if module in sys.modules or not _ended.is_set():
        return False
    world = comm.world()
    beside = world.hosts.count(world.hosts[world.rank])
    left = control_group.memory_left()
    if 2 * beside * _BYTES > left:  # half of it stays for cells that never train
        _log(f"Keras is not loaded in advance: {size(left)} of memory are left for {beside} ranks.")
        return False
    get_ipython().events.register("post_run_cell", _tell_late_variables)
    _variables.update(_read_variables())
    _ended.clear()
    open_again = import_gate.close(_ended)
    loader = threading.Thread(
        target=_load, args=[module, open_again], name="tnt-preload", daemon=True
    )
    try:
        loader.start()
    except RuntimeError:  # there is no room for a thread
        open_again()
        _ended.set()
        raise
    return True


def finish() -> None:
    """Waits until what was begun is loaded; may be interrupted.

    Raises:
        BaseException: what loading it has raised; once, then it is tried again by whoever needs it.
    """
    global _error
    _ended.wait()
    error, _error = _error, None
    if error is not None:
        raise error


def _load(module: str, open_again: Callable[[], None]) -> None:
    global _error
    try:
        with _in_background():
            if module == FIT:
                _open_libraries()
            importlib.import_module(module)
    except BaseException as error:  # whatever it is: the fit raises it
        _error = error
        _log(f"{module} could not be loaded in advance: {type(error).__name__}: {error}")
    finally:
        open_again()
        _ended.set()


def _open_libraries() -> None:
    """Opens TensorFlow's shared libraries, of hundreds of megabytes, while other threads of Python
    go on: an import would stop them for so long."""
    tensorflow = importlib.util.find_spec("tensorflow")
    dlopen = ctypes.CDLL(None).dlopen  # called so, it does not hold the interpreter's lock
    dlopen.argtypes, dlopen.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    for folder in tensorflow.submodule_search_locations or () if tensorflow else ():
        for library in sorted(Path(folder).glob("libtensorflow*.so*")):
            dlopen(os.fsencode(library), os.RTLD_NOW)  # what fails, the import says


@contextlib.contextmanager
def _in_background() -> Iterator[None]:
    """Inside, this thread never takes the core from another one that has something to do.

    Not by its nice value, which nobody may lower again without privileges: libraries make threads
    here that compute later, and these have what their maker has.
    """
    usual = os.sched_getscheduler(0)
    if usual == os.SCHED_OTHER:
        _schedule(threading.get_native_id(), os.SCHED_BATCH)
    try:
        yield
    finally:
        if usual == os.SCHED_OTHER:
            for thread in os.listdir("/proc/self/task"):
                _schedule(int(thread), usual)


def _schedule(thread: int, policy: int) -> None:
    # Some containers forbid it, and threads end.
    with contextlib.suppress(PermissionError, ProcessLookupError):
        if os.sched_getscheduler(thread) != policy:
            os.sched_setscheduler(thread, policy, os.sched_param(0))


def _read_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ)}


def _tell_late_variables(_: object) -> None:
    """After a cell: says which variables it has set too late for what is loaded."""
    now = _read_variables()
    late = sorted(name for name, value in now.items() if _variables.get(name) != value)
    _variables.update(now)
    for name in late:
        print(
            f"{name} is set, but ranks began to load Keras when they started, and may ignore it: "
            f"set it with %tnt_cluster start --env {name}=..., or start with --preload nothing.",
            file=sys.stderr,
        )


def _log(line: str) -> None:
    os.write(1, f"{line}\n".encode())
