"""The private run folder of a cluster: profile, keys and logs; nothing is written beside it.

A second folder in shared memory takes MPI's shared segments, which would be slow on a disk and
would stay behind in ``/dev/shm`` when ranks are killed.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class RunFolder:
    """Folders of one cluster, readable by their owner only."""

    path: Path
    segments: Path

    @classmethod
    def create(cls, cluster_id: str) -> RunFolder:
        """Makes the folders, under ``TNT_RUN_DIR`` if set, else where temporary files go."""
        base = os.environ.get("TNT_RUN_DIR") or tempfile.gettempdir()
        path = Path(tempfile.mkdtemp(prefix=f"tnt-{cluster_id}-", dir=base))  # mode 0700
        segments = _SHARED_MEMORY / path.name if _SHARED_MEMORY.is_dir() else path / "segments"
        folder = cls(path, segments)
        parts = (folder.profile, folder.ipython, folder.logs, folder.mpi, folder.temporary)
        for part in (*parts, segments):
            part.mkdir(mode=0o700)
        return folder

    @property
    def all(self) -> tuple[Path, Path]:
        """What has to be removed when the cluster is gone."""
        return self.path, self.segments

    @property
    def profile(self) -> Path:
        """ipyparallel's profile: connection files with their keys."""
        return self.path / "profile"

    @property
    def ipython(self) -> Path:
        """Stands in for ``~/.ipython`` in controller and engines."""
        return self.path / "ipython"

    @property
    def logs(self) -> Path:
        """One log per rank."""
        return self.path / "logs"

    @property
    def mpi(self) -> Path:
        """Session files of the MPI launcher."""
        return self.path / "mpi"

    @property
    def temporary(self) -> Path:
        """Temporary files of the ranks, which TensorFlow for one leaves behind when killed."""
        return self.path / "tmp"

    @property
    def launcher_log(self) -> Path:
        """What mpiexec itself wrote."""
        return self.logs / "mpiexec.log"

    @property
    def controller_log(self) -> Path:
        """What the controller wrote."""
        return self.logs / "controller.log"

    def rank_log(self, rank: int) -> Path:
        """Everything one rank wrote."""
        return self.logs / f"rank-{rank}.log"


def tail(log: Path, lines: int) -> str:
    """The last lines of a log, without reading all of a long one; "" when there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 400 * lines))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:]).strip()
