"""Local copies of files: made once on a node, and gone with the last process that uses them."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

import tnt_notebook as tnt
from tests.support.waiting import eventually
from tnt_notebook import comm
from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.readers import staging


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in ("train/0", "train/1", "test/0", "images/a/0", "images/b/0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name * 1000)
    return folder


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setenv("TNT_STAGE_DIR", str(folder))
    return folder


def test_copies_are_like_the_originals_and_for_their_owner_only(originals, disk):
    given = [f"{originals}/train/*", originals / "test" / "0", originals / "images"]
    copies = tnt.data.staged(given)
    try:
        assert [os.path.basename(copy) for copy in copies] == ["0", "1", "0", "images"]
        assert len(set(copies)) == 4 and all(copy.startswith(str(disk)) for copy in copies)
        texts = [Path(copy).read_text() for copy in (*copies[:3], f"{copies[3]}/b/0")]
        assert texts == [name * 1000 for name in ("train/0", "train/1", "test/0", "images/b/0")]
        modes = {path.stat().st_mode & 0o777 for path in disk.rglob("*")}
        assert modes == {0o700, 0o600}
        (originals / "test" / "0").write_text("another")
        assert Path(tnt.data.staged(given)[2]).read_text() == "another"
        assert Path(copies[2]).read_text() == "test/0" * 1000  # who reads it is not disturbed
    finally:
        staging._leave_all()
    assert not any(disk.iterdir())


def on_rank(files: str, disk: str) -> tuple[list[str], int, bool]:
    """Stages, and leaves: the copies; which file one is; and whether it is there when another rank
    has left."""
    copies = tnt.data.staged(files, to=disk)
    number = os.stat(copies[0]).st_ino
    comm.world().barrier()
    if comm.rank() == 0:
        staging._leave_all()
    comm.world().barrier()
    is_there = os.path.exists(copies[0])
    comm.world().barrier()
    staging._leave_all()
    comm.world().barrier()
    return copies, number, is_there


def test_ranks_of_a_node_have_the_same_copies(ranks, originals, disk):
    first, second = ranks.run(2, on_rank, f"{originals}/train/*", str(disk))
    assert first == second and len(first[0]) == 2 and first[2]
    eventually(lambda: not any(disk.iterdir()))


def test_what_does_not_fit_is_refused_before_anything_is_copied(originals, disk):
    os.truncate(originals / "train" / "0", 1 << 43)  # no bytes are written
    with pytest.raises(DataError, match=r"are free in .*, and the copies take 8 TB. Make room"):
        tnt.data.staged(f"{originals}/train/*")
    assert not any(disk.iterdir())


def test_a_copy_that_fails_leaves_nothing(originals, disk):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(DataError, match=r"Rank 0 cannot copy .*train/0 to .*: File too large"):
            tnt.data.staged(f"{originals}/train/*")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not any(disk.iterdir())


def test_nothing_is_left_of_processes_that_are_killed(originals, disk):
    killed = os.fork()
    if not killed:
        try:
            tnt.data.staged(originals / "train")
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(killed, 0)[1])
    eventually(lambda: not any(disk.iterdir()))  # the keeper
    left = disk / f"tnt-staged-{os.getuid()}" / "0123456789abcdef"
    left.mkdir(0o700, parents=True)
    left.parent.chmod(0o700)
    (left / "users").touch()
    (left / "big").touch()
    tnt.data.staged(originals / "train")
    assert not left.exists()
    staging._leave_all()


def test_who_waits_goes_on_copying_for_one_that_dies(originals, disk):
    folder = staging._root(None) / staging._key(
        staging._originals(staging._places([str(originals / "train")]))
    )
    begun, ended = os.pipe()
    dying = os.fork()
    if not dying:
        try:
            staging._is_used(folder)
            (folder / "0").mkdir()
            (folder / "0" / "train.part").touch()
            lock = os.open(folder / "copying", os.O_RDWR | os.O_CREAT, 0o600)
            with staging._taken(lock):
                os.write(ended, b".")
                signal.pause()
        finally:
            os._exit(1)
    os.read(begun, 1)
    signal.signal(signal.SIGALRM, lambda number, frame: os.kill(dying, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    (copy,) = tnt.data.staged(originals / "train")
    os.waitpid(dying, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert sorted(os.listdir(copy)) == ["0", "1"]
    assert not list(folder.rglob("*.part"))
    staging._leave_all()
