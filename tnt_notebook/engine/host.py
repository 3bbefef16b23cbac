"""What ranks leave on a host that is not the notebook's: a folder, and somebody who removes it.

The notebook's host has its warden. On any other the first rank starts one that waits until all
ranks there have ended, ends what they have left running, and removes the folder. A batch system may
kill it with the ranks: then the next cluster's first rank on that host removes the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tnt_notebook import protocol, warden
from tnt_notebook.engine.placement import Seat


def prepare(home: Path, here: Seat) -> None:
    """Makes the folder of this host, for MPI's segments and for temporary files.

    Args:
        home: the cluster's folder that all hosts see; those of a host have the same name.
        here: this rank's place; the first rank of a host starts the process that cleans up.
    """
    in_memory = protocol.SHARED_MEMORY.is_dir()
    segments = (protocol.SHARED_MEMORY if in_memory else Path(tempfile.gettempdir())) / home.name
    if (segments / protocol.HOME_LINK).is_symlink():  # the notebook's own host
        _use(home / protocol.TEMPORARY)
        return
    temporary = Path(tempfile.gettempdir()) / home.name
    for folder in (segments, segments / warden.RANKS, temporary):
        folder.mkdir(mode=0o700, exist_ok=True)
        _check_own(folder)
    # Told before anything can fail: a file for each rank, named by its pid, with where that counts.
    (segments / warden.RANKS / str(os.getpid())).write_text(warden.pids_count_in())
    if here.local_rank == 0:
        _remove_remains(segments)
        subprocess.Popen(
            [sys.executable, "-I", "-S", warden.PROGRAM,
             os.environ[warden.MARKER], str(home), str(segments), str(temporary)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd="/",
            env={},  # not found, and ended, as a process of the cluster
        )  # fmt: skip
    _use(temporary)


def _remove_remains(own: Path) -> None:
    """Removes folders of clusters none of whose ranks are here any more."""
    for segments in own.parent.glob(protocol.CLUSTERS):
        try:
            told = [file.read_text() for file in (segments / warden.RANKS).iterdir()]
            status = segments.lstat()
        except OSError:  # another kind of folder, another user's, or gone meanwhile
            continue
        theirs = segments == own or status.st_uid != os.geteuid()
        begins = time.time() - status.st_mtime < 2 * warden.LINGER_S
        elsewhere = set(told) != {warden.pids_count_in()}
        cluster_id = segments.name.split("-")[1]
        if not (theirs or begins or elsewhere or warden.ranks_on_host(cluster_id, str(segments))):
            temporary = Path(tempfile.gettempdir()) / segments.name
            warden.remove([str(segments), str(temporary)])


def _use(temporary: Path) -> None:
    os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None  # it remembers the folder of before


def _check_own(folder: Path) -> None:
    """Somebody else may have made a folder of this name before."""
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise OSError(f"{folder} exists and belongs to another user, or is open to others")
