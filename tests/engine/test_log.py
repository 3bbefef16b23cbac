"""A log that is cut while it is written and read."""

import os
from pathlib import Path

import pytest

from tests.support.holes import written
from tnt_notebook.cluster.files.folder import RunFolder, tail
from tnt_notebook.cluster.files.log_tails import LogTails
from tnt_notebook.engine import log

MB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "logs").mkdir()
    return RunFolder(tmp_path, tmp_path)


def test_of_much_in_a_log_is_shown_what_can_be_and_how_much_it_was(folder: RunFolder) -> None:
    path = folder.rank_log(0)
    path.write_text("")
    tails = LogTails(folder, [0])
    path.write_text(f"{'x' * 99}\n" * 30_000 + "the end\n")
    shown = sum(len(text) for _ in range(20) for _, text in tails.new())
    ((rank, said),) = tails.left_out()
    assert rank == 0 and 0.8 * MB < shown < MB
    assert "1.9" in said and "MB are not shown here" in said and said.endswith("x\nthe end\n")
    assert tails.left_out() == tails.new() == []


@pytest.mark.parametrize("punches", [True, False])
def test_the_end_stays_and_readers_go_on(
    folder: RunFolder, punches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not punches:  # as on NFS 3
        monkeypatch.setattr(log, "_punched", lambda *_: False)
    path = folder.rank_log(0)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        tails = LogTails(folder, [0])
        os.write(file, b"first\n")
        assert tails.new() == [(0, "first\n")]
        os.write(file, b"y\n" * (2 * MB) + b"before\n")
        os.fsync(file)
        assert log.cut(file, most=8 * MB, kept=2 * MB) == 0  # it is not too long yet
        assert written(path) > 4 * MB
        begin = log.cut(file, most=3 * MB, kept=2 * MB)
        assert (begin > MB) == punches
        os.write(file, b"after\n")
        assert log.cut(file, begin, most=3 * MB, kept=2 * MB) == begin
        assert written(path) < 3 * MB
        assert tail(path, 3).splitlines() == ["y", "before", "after"]
        assert path.read_text().lstrip("\0").count("y\n") > MB // 4
        said = "".join(text for _ in range(100) for _, text in tails.new())
        said += "".join(text for _, text in tails.left_out())
        assert said.endswith("y\nbefore\nafter\n")
    finally:
        os.close(file)


def test_a_reader_is_not_held_up_by_what_has_no_end_of_line(folder: RunFolder) -> None:
    path = folder.rank_log(0)
    path.write_bytes(b"x" * (2 * MB) + b"\nend\n")
    tails = LogTails(folder, [0], most=MB)
    tails._at = [0]
    (first, *_) = [text for _ in range(3) for _, text in tails.new()]
    ((_, left_out),) = tails.left_out()
    assert first.rstrip("\n") == "x" * MB and left_out.endswith("]\nend\n")
