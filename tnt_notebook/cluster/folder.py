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
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from tnt_notebook import protocol, warden

_ROOM = 1 << 20  # a start writes less


@dataclass(frozen=True)
class RunFolder:
    """Folders of one cluster, readable by their owner only."""

    path: Path
    segments: Path

    @classmethod
    def create(cls, cluster_id: str, on_all_nodes: bool = False) -> RunFolder:
        """Makes the folders, in :func:`base`.

        Raises:
            OSError: they cannot be made, or there is no room for what a start writes.
        """
        parent = base(on_all_nodes)
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = Path(tempfile.mkdtemp(prefix=f"tnt-{cluster_id}-", dir=parent))  # mode 0700
        folder = cls(path, local_folder(path.name) or path / "segments")
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
        """Raises OSError where nothing can be written: of a quota only a file tells that is."""
        room = self.path / "room"
        try:
            room.write_bytes(bytes(_ROOM))
        finally:
            room.unlink(missing_ok=True)

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
        """Session files of the MPI launcher, where it runs on this host only."""
        return self.path / "mpi"

    @property
    def temporary(self) -> Path:
        """Temporary files of ranks on this host, which TensorFlow leaves behind when killed."""
        return self.path / protocol.TEMPORARY

    @property
    def record(self) -> Path:
        """What the cluster is, for those who look for it."""
        return self.path / "cluster.json"

    @property
    def warden(self) -> Path:
        """The socket of the process that keeps the cluster."""
        return self.segments / "warden"  # here, as a socket's path must be short

    @property
    def busy(self) -> Path:
        """Touched while a fit goes on."""
        return self.path / protocol.BUSY

    @property
    def time_is_up(self) -> Path:
        """Made by the script of a job whose time is nearly over."""
        return self.path / protocol.TIME_IS_UP

    def ended(self, round: int) -> Path:
        """Made by the script of a job when the ranks that it started in a round have ended."""
        return self.path / f"ended-{round}"

    def again(self, round: int) -> Path:
        """Asks the script to start ranks again after a round."""
        return self.path / f"again-{round}"

    @property
    def launcher_log(self) -> Path:
        """What mpiexec itself wrote, or the job."""
        return self.logs / "mpiexec.log"

    @property
    def job_log(self) -> Path:
        """What a batch system wrote of a job beside that."""
        return self.logs / "job.log"

    @property
    def controller_log(self) -> Path:
        """What the controller wrote."""
        return self.logs / "controller.log"

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


def local_folder(name: str) -> Path | None:
    """The folder of a cluster in this host's shared memory; None where there is none."""
    return protocol.SHARED_MEMORY / name if protocol.SHARED_MEMORY.is_dir() else None


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
            segments = local_folder(path.name) or real / "segments"
            found.setdefault(path.name, RunFolder(real, segments))
    return [found[name] for name in sorted(found)]


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
