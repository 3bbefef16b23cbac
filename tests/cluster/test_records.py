"""What is kept of a cluster and of a fit: whatever the files hold, nobody falls over them."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tnt_notebook.cluster.files import fit_note, record
from tnt_notebook.cluster.files.folder import RunFolder
from tnt_notebook.cluster.files.log_tails import LogTails
from tnt_notebook.errors import ClusterError
from tnt_notebook.magics import cluster_magic as magic

PLAN = {
    "id": "1a2b3c4d", "folders": ["/tmp/tnt-1a2b3c4d-x"], "socket": "/nowhere/warden",
    "busy": "/nowhere/busy", "keep_s": 900.0, "fit_s": 900.0,
    "ask": [], "cancel": [], "listing": [], "sweep": [],
}  # fmt: skip
RECORD = record.Record(
    id="1a2b3c4d", ranks=2, launcher="slurm", host="node1", pids="1", began=1.8e9, plan=PLAN,
    request={"ranks": 2}, state="ready", controller=(77, 1.8e9), job="12",
    seats=({"host": "node1"},), reached="10.0.0.1, on the way to node1 (eth0)",
)  # fmt: skip
FIT = fit_note.FitNote(
    title="fit", run="/runs/1", options={"bucket_mb": 2}, cell="1", logs=(10, 20)
)
#: Numbers that are none, or too large for what they count, among them.
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    | st.sampled_from([10**400, float("inf"), -(2**63), "warden\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    monkeypatch.setenv("TNT_RUN_DIR", str(tmp_path))
    folder = RunFolder.create("1a2b3c4d")
    yield folder
    for path in (folder.segments / "folder", folder.segments):
        path.unlink() if path.is_symlink() else path.rmdir()


def broken(whole: dict[str, Any]) -> st.SearchStrategy[str]:
    """A file of which one part is something else, or is not there, or which ends early."""
    inner = [(name, key) for name, part in whole.items() if isinstance(part, dict) for key in part]

    def changed(where: tuple, value: Any) -> str:
        copy = json.loads(json.dumps(whole))
        part = copy[where[0]] if len(where) > 1 else copy
        part[where[-1]] = value
        return json.dumps(copy)

    def lacking(name: str) -> str:
        return json.dumps({key: value for key, value in whole.items() if key != name})

    places = [(name,) for name in whole] + inner
    return st.one_of(
        st.builds(changed, st.sampled_from(places), ANY),
        st.builds(lacking, st.sampled_from(list(whole))),
        st.integers(0, 200).map(lambda end: json.dumps(whole)[:end]),
        ANY.map(json.dumps),
        st.just("[" * 100_000),
    )


def test_a_record_comes_back(folder):
    record.write(RECORD, folder)
    assert record.read(folder) == RECORD
    later = json.dumps({**dataclasses.asdict(RECORD), "of_a_later_version": 1})
    folder.record.write_text(later)
    assert record.read(folder) == RECORD


QUICKLY = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICKLY
@given(text=broken(dataclasses.asdict(RECORD)))
def test_any_record_can_be_listed(folder, text):
    folder.record.write_text(text)
    for known in record.listed():
        assert all(isinstance(word, str) for word in magic._row(known, None))
    for meant in (None, "1a2b3c4d"):
        try:
            record.find(meant)
        except ClusterError:
            pass


@QUICKLY
@given(text=broken(dataclasses.asdict(FIT)))
def test_any_note_of_a_fit_can_be_read(folder, text):
    (folder.path / "fit.json").write_text(text)
    found = fit_note.read(folder)
    if found is not None:
        assert LogTails(folder, found.logs).new() == []
