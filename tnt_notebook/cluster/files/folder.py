"""The private folders of a cluster: profile, keys and logs; nothing is written beside them.

::

    tnt-1a2b3c4d-x7y8z9/      where temporary files go, or where all nodes see it; for its owner
        cluster.json          what the cluster is
        profile/ ipython/     ipyparallel's files, with the keys
        logs/                 of controller, launcher and each rank
        mpi/ tmp/             session files of the launcher, temporary files of the ranks
        job.sh environment.sh of a batch system
        busy                  touched while a fit goes on
    /dev/shm/tnt-1a2b3c4d-x7y8z9/    on each host
        folder                link to the folder above, on the notebook's host
        warden                socket of the process that keeps the cluster
        ...                   MPI's shared segments, which would be slow on a disk and would stay
                              behind when ranks are killed
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import platformdirs

from tnt_notebook import protocol, warden
from tnt_notebook.cluster.output.banner import without_banner

_ROOM = 1 << 20  # a start writes less


class RunFolder:
    """The folders of one cluster, and what lies in them.

    Args:
        path: the folder itself.
        segments: the one in this host's memory.
    """

    def __init__(self, path: Path, segments: Path) -> None:
        self.path, self.segments = path, segments
        self.all = (path, segments)  # to be removed when the cluster is gone
        self.profile = path / "profile"
        self.ipython = path / "ipython"  # stands in for ~/.ipython in controller and engines
        self.logs = path / "logs"
        self.mpi = path / "mpi"
        self.temporary = path / protocol.TEMPORARY  # TensorFlow leaves files there when killed
        self.record = path / "cluster.json"
        self.warden = segments / "warden"  # here, as a socket's path must be short
        self.busy = path / protocol.BUSY
        self.time_is_up = path / protocol.TIME_IS_UP
        self.launcher_log = self.logs / "mpiexec.log"  # what mpiexec itself wrote, or the job
        self.job_log = self.logs / "job.log"  # what a batch system wrote of a job beside that
        self.controller_log = self.logs / "controller.log"

    @classmethod
    def create(cls, cluster_id: str, on_all_nodes: bool = False) -> RunFolder:
        """Makes the folders, in :func:`base`.

        Raises:
            OSError: they cannot be made, or there is no room for what a start writes.
        """
        parent = base(on_all_nodes)
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = Path(tempfile.mkdtemp(prefix=f"tnt-{cluster_id}-", dir=parent))  # mode 0700
        folder = cls(path, segments_of(path))
        parts = (folder.profile, folder.ipython, folder.logs, folder.mpi, folder.temporary)
        try:
            for part in (*parts, folder.segments):
                part.mkdir(mode=0o700)
            for log in (folder.controller_log, folder.launcher_log, folder.job_log):
                log.touch(0o600)  # others append to them, and would let everybody read
            (folder.segments / protocol.HOME_LINK).symlink_to(path)
            folder.check_room()
        except OSError:
            warden.remove([str(made) for made in folder.all])
            raise
        return folder

    def check_room(self) -> None:
        """Raises OSError where nothing can be written: only a file tells of a quota."""
        room = self.path / "room"
        try:
            room.write_bytes(bytes(_ROOM))
        finally:
            room.unlink(missing_ok=True)

    def ended(self, round: int) -> Path:
        """Made by the script of a job when the ranks that it started in a round have ended."""
        return self.path / f"ended-{round}"

    def again(self, round: int) -> Path:
        """Asks the script to start ranks again after a round."""
        return self.path / f"again-{round}"

    def rank_log(self, rank: int) -> Path:
        """Everything one rank wrote."""
        return self.logs / protocol.rank_log(rank)


def base(on_all_nodes: bool) -> Path:
    """Where folders of clusters lie: ``TNT_RUN_DIR``; else where temporary files go, or, where
    other nodes must see them, below the user's folder for data.
    """
    if chosen := os.environ.get("TNT_RUN_DIR"):
        return Path(chosen).absolute()
    if on_all_nodes:
        return platformdirs.user_data_path("tnt_notebook") / "clusters"
    return Path(tempfile.gettempdir())


def segments_of(path: Path) -> Path:
    """The folder of a cluster in this host's shared memory; where there is none, in its own."""
    memory = protocol.SHARED_MEMORY
    return memory / path.name if memory.is_dir() else path / "segments"


def known() -> list[RunFolder]:
    """The folders of this user's clusters: those kept on this host, and those on any that use the
    same home."""
    found: dict[str, RunFolder] = {}
    for parent in {protocol.SHARED_MEMORY, base(False), base(True)}:
        if not parent.is_dir():
            continue
        for path in parent.glob(protocol.CLUSTERS):
            try:
                if path.is_symlink() or path.stat().st_uid != os.geteuid():
                    continue  # somebody else's, whatever it says
                on_host = parent == protocol.SHARED_MEMORY
                real = Path(os.readlink(path / protocol.HOME_LINK)) if on_host else path
            except OSError:  # it is being made or removed
                continue
            found.setdefault(path.name, RunFolder(real, path if on_host else segments_of(path)))
    return [found[name] for name in sorted(found)]


def tail(log: Path, lines: int) -> str:
    """The last lines of a log but for TensorFlow's banner, without reading all of a long one; ""
    when there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 400 * lines))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(without_banner(text).splitlines()[-lines:]).strip()
