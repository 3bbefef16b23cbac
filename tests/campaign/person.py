"""A person at a notebook: starts ranks, trains, asks what became of it, and starts again."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.campaign.trainings import Training
from tests.magics.notebook import Notebook, ended, kernel, shown
from tests.support.wardens import wardens
from tnt_notebook import warden

#: Seconds that any answer of the notebook may take, the start of ranks and TensorFlow among them.
PATIENCE_S = 150.0

CLUSTER = "__import__('tnt_notebook').magics.sessions[get_ipython()].cluster"
BEGIN = f"""
%load_ext tnt_notebook
%tnt_cluster {{start}}
_cluster = {CLUSTER}
import json
print("cluster", json.dumps([_cluster.id, _cluster.record.plan], default=str))
"""
WAIT = """
try:
    fit.wait(300)
except BaseException as error:
    print("error", type(error).__name__, error)
print("state", fit.state)
"""
#: The weights on all ranks, beside those of an undisturbed training of before.
WEIGHTS = """%%tnt
import hashlib, os
import numpy as np
def compare(file):
    weights = model.get_weights()
    digest = hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest()[:16]
    from tnt_notebook import comm
    if not os.path.exists(file) and comm.world().rank == 0:
        np.savez(file + ".npz", *weights)
        os.rename(file + ".npz", file)
    comm.world().barrier()
    with np.load(file) as known:
        apart = max(np.max(np.abs(known[n] - w), initial=0) for n, w in zip(known.files, weights))
    return f"weights {digest} apart {apart:.3g}"
print(compare({file!r}))
"""


class Person:
    """
    Args:
        notebook: a kernel.
        start: the rest of ``%tnt_cluster``, such as ``start -n 3``.
    """

    def __init__(self, notebook: Notebook, start: str) -> None:
        self.notebook = notebook
        text = notebook.run(BEGIN.format(start=start), PATIENCE_S)
        lines = [line for line in text.splitlines() if line.startswith("cluster ")]
        if not lines:
            raise AssertionError(f"no ranks:\n{text}")
        self.id, self.plan = json.loads(lines[-1].removeprefix("cluster "))
        self.folders = self.plan["folders"]

    def type(self, cell: str) -> str:
        """What a cell shows, which has to end; and what others show meanwhile, as that of a fit."""
        return self._until_ended(self.notebook.begin(cell))

    def _until_ended(self, cell: str) -> str:
        messages, begin = [], time.monotonic()
        while not ended([m for m in messages if m["parent_header"].get("msg_id") == cell]):
            left = PATIENCE_S - (time.monotonic() - begin)
            messages.append(self.notebook.client.get_iopub_msg(timeout=max(0.1, left)))
        return shown(messages)

    def train(self, training: Training, checkpoints: str, trap: str = "") -> str:
        """Begins a fit; what its cell shows."""
        return self.type(training.cell(checkpoints, trap))

    def told(self) -> str:
        """Waits for the fit; what became of it, in the words of the notebook."""
        return self.type(WAIT)

    def interrupted_until_told(self) -> str:
        """The same, with the notebook's interrupt soon after it began to wait."""
        cell = self.notebook.begin(WAIT)
        time.sleep(0.3)
        self.notebook.manager.interrupt_kernel()
        return self._until_ended(cell)

    def weights(self, file: Path) -> str:
        return self.type(WEIGHTS.replace("{file!r}", repr(str(file))))

    def process(self, kind: str) -> psutil.Process:
        """The cluster's warden, or its mpiexec."""
        if kind == "warden":
            return psutil.Process(wardens(self.plan)[0])
        for pid in warden.processes_of(self.id):
            if any(name in _command(pid) for name in ("mpiexec", "prterun")):
                return psutil.Process(pid)
        raise AssertionError(f"the cluster has no {kind}")

    def left(self) -> list[str]:
        """What is there of the cluster, a moment after its end."""
        deadline = time.monotonic() + 30
        while True:
            pids = warden.processes_of(self.id)
            found = [f"process {pid}: {_command(pid)}" for pid in pids]
            found += [f for f in os.listdir("/dev/shm") if self.id in f]
            found += [folder for folder in self.folders if os.path.exists(folder)]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def clean(self) -> None:
        """Ends what should have ended by itself."""
        for pid in warden.processes_of(self.id):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        warden.remove(self.folders)


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:160]
    except psutil.Error:
        return "gone"


@contextmanager
def person(folder: Path, start: str) -> Iterator[Person]:
    with kernel(folder) as notebook:
        yield Person(notebook, start)
