"""Files of checkpoints tell when they are damaged, wherever that is."""

import os
import stat
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tnt_notebook.errors import CheckpointError
from tnt_notebook.parallel.checkpoint import files, folder
from tnt_notebook.parallel.checkpoint.config import Checkpoint
from tnt_notebook.parallel.checkpoint.files import MANIFEST, Arrays, Damaged
from tnt_notebook.parallel.checkpoint.writer import owners

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "uint32", "int8", "bool")
SHAPES = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@st.composite
def contents(draw: Any) -> dict[str, np.ndarray]:
    found = {}
    for name in draw(st.lists(st.text(max_size=8), unique=True, max_size=4)):
        dtype, shape = draw(st.sampled_from(DTYPES)), draw(SHAPES)
        raw = draw(arrays(np.int16, shape)).astype(getattr(ml_dtypes, dtype, dtype))
        found[name] = raw
    return found


def checkpoint(where: Path, shards: list[dict[str, np.ndarray]]) -> Path:
    path = folder.part(where, "step-00000001")
    digests = [files.write_shard(path, i, shard) for i, shard in enumerate(shards)]
    folder.finish(where, "step-00000001", {"shards": digests, "state": {"x": [1.5, None]}})
    return where / "step-00000001"


def read(path: Path) -> list[dict[str, np.ndarray]]:
    digests = files.read_facts(path / MANIFEST)["shards"]
    return [dict(Arrays(path, {i: digest})) for i, digest in enumerate(digests)]


@settings(max_examples=60)
@given(st.lists(contents(), min_size=1, max_size=3))
def test_what_is_read_is_what_was_written(tmp_path_factory, shards):
    path = checkpoint(tmp_path_factory.mktemp("whole"), shards)
    for ours, theirs in zip(read(path), shards, strict=True):
        assert list(ours) == list(theirs)
        for name, array in theirs.items():
            assert ours[name].dtype == array.dtype and ours[name].shape == array.shape
            assert ours[name].tobytes() == array.tobytes()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    numbers = np.random.default_rng(0)
    weights = {f"variable/{i}": numbers.normal(size=(i, 3)).astype("float32") for i in range(4)}
    return checkpoint(tmp_path_factory.mktemp("damaged"), [weights, {"metric/0": np.ones((2, 1))}])


NAMES = (MANIFEST, "shard-0.json", "shard-0.bin", "shard-1.json", "shard-1.bin")


@settings(max_examples=300)
@given(name=st.sampled_from(NAMES), at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_bit_that_changed_is_found(written, name, at, bit):
    changed = bytearray((written / name).read_bytes())
    changed[int(at * len(changed))] ^= 1 << bit
    assert_found(written, name, changed)


def assert_found(path: Path, name: str, changed: bytes) -> None:
    content = (path / name).read_bytes()
    (path / name).write_bytes(changed)
    try:
        with pytest.raises(Damaged):
            read(path)
    finally:
        (path / name).write_bytes(content)


@settings(max_examples=100)
@given(
    name=st.sampled_from(NAMES), keep=st.floats(0, 1, exclude_max=True), more=st.binary(max_size=3)
)
def test_a_file_that_was_cut_short_or_goes_on_is_found(written, name, keep, more):
    content = (written / name).read_bytes()
    assert_found(written, name, content[: int(keep * len(content))])
    assert_found(written, name, content + b"\n" + more)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_missing_is_found(written, name):
    path = written / name
    path.rename(written / "elsewhere")
    try:
        with pytest.raises(Damaged, match=name.split("-")[0]):
            read(written)
    finally:
        (written / "elsewhere").rename(path)


def test_shards_of_another_checkpoint_are_found(written, tmp_path):
    other = checkpoint(tmp_path, [{"variable/0": np.ones(3)}])
    digest = files.read_facts(written / MANIFEST)["shards"][0]
    with pytest.raises(Damaged, match="another checkpoint"):
        Arrays(other, {0: digest})


def test_files_are_for_their_owner_alone(written):
    assert stat.S_IMODE(written.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in written.iterdir()} == {0o600}


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    os.chmod(tmp_path, 0o777)
    with pytest.raises(CheckpointError, match="chmod go-w"):
        folder.make(tmp_path)


def test_a_folder_of_another_user_is_refused(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("this machine does not allow it: only root can give a folder away")
    os.chown(tmp_path, 1234, 1234)
    with pytest.raises(CheckpointError, match="another user"):
        folder.make(tmp_path)


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(CheckpointError, match=r"thesis\.tex"):
        folder.read_run(tmp_path)
    folder.clear(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "~nobody-of-this-name/runs"])
def test_what_names_no_folder_is_refused(name):
    with pytest.raises(CheckpointError, match="can have the name"):
        Checkpoint(name)


def test_who_does_not_hold_the_folder_any_more_finishes_nothing(tmp_path):
    folder.write_run(tmp_path, {"holder": "who went on from here"})
    folder.check_held(tmp_path, "who went on from here")
    with pytest.raises(OSError, match="another run goes on"):
        folder.check_held(tmp_path, "a rank that was cut off, and lives")


def test_what_was_not_finished_does_not_count_and_is_removed(tmp_path):
    files.write_shard(folder.part(tmp_path, "step-00000001"), 0, {"a": np.ones(3)})
    assert folder.whole(tmp_path) == []
    folder.remove_left_over(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_others_remove_at_the_same_time_is_no_error(tmp_path):
    seen = [tmp_path / f".seen-{rank:06d}" for rank in range(200)]

    def remove() -> None:
        for path in reversed(seen):
            path.unlink(missing_ok=True)

    for _ in range(20):
        for path in seen:
            path.touch()
        other = threading.Thread(target=remove)
        other.start()
        folder.remove_left_over(tmp_path)
        other.join()


@given(
    st.integers(1, 8).flatmap(
        lambda ranks: st.tuples(
            st.just(ranks),
            st.lists(
                st.tuples(
                    st.integers(0, 10**6),
                    st.lists(st.integers(0, ranks - 1), min_size=1, unique=True),
                )
            ),
        )
    )
)
def test_each_variable_is_written_by_one_rank_that_has_it(world):
    ranks, variables = world
    sizes, holders = [size for size, _ in variables], [who for _, who in variables]
    found = owners(sizes, holders, ranks)
    assert all(owner in who for owner, who in zip(found, holders, strict=True))
    if all(len(who) == ranks for who in holders):  # then none has more than its part, and one more
        loads = [sum(s for s, o in zip(sizes, found, strict=True) if o == r) for r in range(ranks)]
        assert max(loads) <= sum(sizes) / ranks + max(sizes, default=0)
