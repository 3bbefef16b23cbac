"""A run that was broken off goes on, and comes to what it would have come to."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import re
import signal
from pathlib import Path
from typing import Any

import keras
import pytest

import tnt_notebook as tnt
from tests.comm import job
from tests.comm.test_links import files_limited
from tests.parallel import interrupted
from tests.parallel.interrupted import Result, assert_close, assert_equal
from tests.support.cases import latin
from tests.support.waiting import eventually
from tnt_notebook import comm
from tnt_notebook.engine import fit as engine_fit
from tnt_notebook.errors import CheckpointError, SuspendedError
from tnt_notebook.parallel.checkpoint import folder
from tnt_notebook.parallel.checkpoint import run as checkpoint_run
from tnt_notebook.parallel.checkpoint.opening import check_shared
from tnt_notebook.telemetry import codec

TF_DATA = ("tf.data", "tf.data repeated", "tf.data over epochs", "tf.data of unknown length")
INPUTS = (*TF_DATA, "PyDataset", "generator")


def cell(
    name: str, folder: str | None = None, at: int | None = None, options: Any = ()
) -> Result | str:
    """Runs one of `interrupted`; the options are those of a checkpoint, and ``stages``."""
    function = getattr(interrupted, name, None) or interrupted.of_input(name)
    return interrupted.run(function, folder, at, **dict(options))


_whole: dict[tuple, list] = {}


def whole(ranks, n: int, name: str) -> list[Result]:
    """What comes of a cell that is not broken off."""
    if (n, name) not in _whole:
        _whole[n, name] = ranks.run(n, cell, name)
    return _whole[n, name]


def check(ranks, n: int, name: str, folder: str, at: int) -> None:
    assert ranks.run(n, cell, name, folder, at) == ["broken off"] * n
    for ours, theirs in zip(ranks.run(n, cell, name, folder), whole(ranks, n, name), strict=True):
        assert_equal(ours, theirs)


@pytest.mark.core
@pytest.mark.parametrize(("n", "at"), ((1, 12), (2, 3), (2, 10)))  # the 10th ends an epoch
def test_the_result_is_that_of_a_run_that_was_not_broken_off(ranks, tmp_path, n, at):
    check(ranks, n, "with_everything", str(tmp_path), at)


@pytest.mark.parametrize(("kind", "n"), latin(INPUTS, (2, 1)))
def test_it_sees_the_batches_that_it_would_have_seen(ranks, tmp_path, kind, n):
    check(ranks, n, kind, str(tmp_path), 12)


def test_a_reader_goes_on_within_an_epoch(ranks, tmp_path):
    check(ranks, 2, "reader", str(tmp_path), 12)


def test_a_fit_that_had_ended_is_not_trained_again(ranks, tmp_path):
    check(ranks, 2, "two_fits", str(tmp_path), 13)
    assert "Fit 1 had ended" in ranks.output()


@pytest.mark.core
@pytest.mark.parametrize(("stages", "then"), ((0, (3, 0)), (2, (1, 0)), (2, (4, 2))))
def test_it_goes_on_on_other_ranks(ranks, tmp_path, stages, then):
    folder, (n, stages_then) = str(tmp_path), then
    assert ranks.run(2, cell, "plain", folder, 7, {"stages": stages}) == ["broken off"] * 2
    (expected,) = whole(ranks, 1, "plain")
    for ours in ranks.run(n, cell, "plain", folder, None, {"stages": stages_then}):
        assert_close(ours, expected)


@pytest.mark.parametrize("then", [{"mesh": tnt.Mesh(data=2, model=2)}, {}], ids=str)
def test_it_goes_on_on_another_mesh(ranks, tmp_path, then):
    folder, n = str(tmp_path), 4 if then else 3
    assert ranks.run(2, cell, "plain", folder, 7, {"mesh": tnt.Mesh(model=2)}) == ["broken off"] * 2
    (expected,) = whole(ranks, 1, "plain")
    for ours in ranks.run(n, cell, "plain", folder, None, then):
        assert_close(ours, expected)


@pytest.mark.parametrize("n", [2, 3])
def test_a_model_that_is_never_whole_goes_on(ranks, tmp_path, n):
    folder, mesh = str(tmp_path), {"mesh": tnt.Mesh(model=2)}
    assert ranks.run(2, cell, "lazy", folder, 13, mesh) == ["broken off"] * 2
    (expected,) = whole(ranks, 1, "lazy")
    for ours in ranks.run(n, cell, "lazy", folder, None, {"mesh": tnt.Mesh(model=n)}):
        assert_close(ours, expected)


def go_on_from(ranks, n: int, name: str, folder: Path, options: dict[str, Any]) -> str:
    """Runs a cell to its end, which must be as if it had not been broken off.

    Returns:
        What the ranks printed of late.
    """
    ours = ranks.run(n, cell, name, str(folder), None, options)
    for one, other in zip(ours, whole(ranks, n, name), strict=True):
        assert_equal(one, other)
    return ranks.output()


def test_a_broken_checkpoint_is_named_and_the_one_before_is_taken(ranks, tmp_path):
    two = {"checkpoints": 2}
    assert ranks.run(2, cell, "plain", str(tmp_path), 7, two) == ["broken off"] * 2
    older, newer = folder.whole(tmp_path)[-2:]
    damage(tmp_path / newer / "shard-1.bin")
    said = go_on_from(ranks, 2, "plain", tmp_path, {})
    assert re.search(rf"{newer} is not used: .* in shard-1.bin is damaged", said)
    steps = int(older.removeprefix("step-"))
    assert f"continues after epoch {(steps - 1) // 5 + 1}, step {(steps - 1) % 5 + 1} of" in said


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_where_all_are_broken_it_begins_anew_as_it_began_before(ranks, tmp_path):
    assert ranks.run(1, cell, "plain", str(tmp_path), 9) == ["broken off"]
    for name in folder.whole(tmp_path):
        (tmp_path / name / "shard-0.bin").write_bytes(b"")
    go_on_from(ranks, 1, "plain", tmp_path, {})


def told_that_time_is_short(name: str, folder: str, teller: int) -> str:
    """A batch system sends SIGUSR2 to one rank."""
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    engine_fit.install()
    try:
        if comm.rank() == teller:
            os.kill(os.getpid(), signal.SIGUSR2)
        cell(name, folder)
    except SuspendedError as error:
        return str(error)
    finally:
        signal.signal(signal.SIGUSR1, before[0])
        signal.signal(signal.SIGUSR2, before[1])
    return "trained to the end"


def test_all_ranks_leave_with_a_checkpoint_when_one_is_told(ranks, tmp_path):
    told = ranks.run(2, told_that_time_is_short, "with_everything", str(tmp_path), 1)
    assert len(set(told)) == 1 and told[0].startswith("Training was left after epoch 1, step 1 of")
    assert folder.whole(tmp_path) == ["step-00000001"]
    go_on_from(ranks, 2, "with_everything", tmp_path, {})


def begin_in_memory(at: int) -> Result | str:
    return cell("plain", None, at, {"in_memory": True, "every_steps": 1})


def go_on_in_memory() -> tuple[Result | str, int]:
    kept = checkpoint_run.memory
    assert kept is not None
    ours = cell("plain", None, None, {"in_memory": True, "resume": True})
    checkpoint_run.memory = None
    return ours, kept.latest[-1].place.steps


def test_survivors_go_on_from_what_they_remember(ranks):
    assert ranks.run(3, begin_in_memory, 8) == ["broken off"] * 3
    for ours, steps in ranks.run(2, go_on_in_memory):
        assert_close(ours, whole(ranks, 1, "plain")[0])
        assert steps == 9  # the last one: the tenth step was broken off


def refused(name: str, folder: str, options: dict[str, Any]) -> str:
    try:
        cell(name, folder, None, options)
    except CheckpointError as error:
        return str(error)
    return "not refused"


def test_a_run_that_has_ended_is_not_trained_again_by_accident(ranks, tmp_path):
    where = str(tmp_path)
    expected = ranks.run(2, cell, "plain", where)
    said = ranks.run(2, refused, "plain", where, {})
    assert said[0] == said[1] and "has ended" in said[0] and "resume=False" in said[0]
    asked_for = ranks.run(2, cell, "plain", where, None, {"resume": True})
    assert_equal(asked_for[0], expected[0])
    assert "Fit 1 had ended" in ranks.output()
    anew = ranks.run(2, cell, "plain", where, None, {"resume": False})
    assert anew[0].histories != expected[0].histories  # another seed, another run


def test_checkpoints_of_another_cell_are_refused(ranks, tmp_path):
    assert ranks.run(2, cell, "plain", str(tmp_path), 2) == ["broken off"] * 2
    for said in ranks.run(2, refused, "two_fits", str(tmp_path), {}):
        assert "of another cell or script" in said and "resume=True" in said
    for said in ranks.run(2, refused, "with_everything", str(tmp_path), {"resume": True}):
        assert "is of another model: it had" in said
    folder.write_run(tmp_path, {**folder.read_run(tmp_path), "format": 1})
    for said in ranks.run(2, refused, "plain", str(tmp_path), {}):
        assert "another version of tnt_notebook" in said and "--resume no" in said


def _holds_no_run(where: Path) -> None:
    where.rmdir()
    (where / "step-00000007").mkdir(parents=True)


def _is_a_file(where: Path) -> None:
    where.rmdir()
    where.touch()


def _is_a_dead_link(where: Path) -> None:
    where.rmdir()
    where.symlink_to("nothing")


@pytest.mark.parametrize(
    ("make", "below", "said"),
    [
        (
            _holds_no_run,
            "",
            r"holds checkpoints \(step-00000007\), but not run\.json.*resume=True",
        ),
        (_is_a_file, "", r"cannot be used \(.*/own is a file\)"),
        (_is_a_file, "below", r"cannot be used \(.*/own is a file\)"),
        (_is_a_dead_link, "", r"own is a link to nothing, which is not there"),
        (_is_a_dead_link, "a/b", r"own is a link to nothing, which is not there"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(ranks, tmp_path, make, below, said):
    where = tmp_path / "own"
    where.mkdir()
    make(where)
    for refusal in ranks.run(2, refused, "plain", str(where / below), {}):
        assert re.search(said, refusal)
    assert "step-00000007" in os.listdir(where) if make is _holds_no_run else not where.is_dir()


def test_checkpoints_without_their_run_are_gone_on_from_where_one_says_so(ranks, tmp_path):
    where = str(tmp_path)
    assert ranks.run(2, cell, "plain", where, 2, {"every_steps": 1}) == ["broken off"] * 2
    (tmp_path / "run.json").unlink()
    (tmp_path / "step-99999999").symlink_to("nothing")
    (tmp_path / "step-99999998").touch()
    expected = whole(ranks, 2, "plain")
    result = ranks.run(2, cell, "plain", where, None, {"resume": True})
    assert "but not run.json" in ranks.output() and "step-99999999 is not used" in ranks.output()
    assert len(result[0].histories[0]) == len(expected[0].histories[0])


def check_unshared(folder: str, patience_s: float) -> str:
    """Each rank has its own folder of that name, as on a disk of its host."""
    own = Path(folder, str(comm.rank()))
    own.mkdir()
    try:
        check_shared(comm.world(), own, patience_s)
    except CheckpointError as error:
        return str(error)
    return "not found out"


def test_a_folder_that_ranks_do_not_share_is_refused(ranks, tmp_path):
    for said in ranks.run(2, check_unshared, str(tmp_path), 0.2):
        assert "rank 1: does not see there what rank 0 has written" in said
        assert "file system that all hosts share" in said


def with_a_full_disk(name: str, folder: str) -> Result | str:
    """On rank 1 files can have 100 bytes."""
    with files_limited(100) if comm.rank() == 1 else contextlib.nullcontext():
        return cell(name, folder, None, {"every_steps": 3})


def test_a_disk_that_is_full_is_named_once_and_does_no_harm(ranks, tmp_path):
    ours = ranks.run(2, with_a_full_disk, "plain", str(tmp_path))
    assert_equal(ours[0], whole(ranks, 2, "plain")[0])
    said = ranks.output()
    assert said.count("could not be written to " + str(tmp_path)) == 1
    assert "training goes on without: rank 1: File too large" in said
    assert sorted(os.listdir(tmp_path)) == ["run.json"]


SCRIPT = """
import os, pickle, signal, sys
import keras
import tensorflow as tf
from tests.parallel import interrupted
import tnt_notebook as tnt

# As on the ranks whose result is compared bit for bit: optimized graphs round otherwise.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

class Kill(keras.callbacks.Callback):
    count = 0
    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if self.count == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

killing = [Kill()] if sys.argv[2] != "0" else []
cell = lambda callbacks: interrupted.with_everything([*callbacks, *killing])
cell.__name__ = "with_everything"
result = interrupted.run(cell, sys.argv[1], every_steps=1)
if tnt.world().rank == 0:
    with open(sys.argv[3], "wb") as file:
        pickle.dump(result, file)
"""


def test_ranks_that_were_killed_at_any_step_go_on_in_new_processes(ranks, tmp_path):
    step = random.Random(os.getpid()).randint(2, 14)
    where, result = tmp_path / "kept", tmp_path / "result"
    status, said = job.run(tmp_path, 2, SCRIPT, where, step, result)
    assert status != 0 and not result.exists(), f"killed at step {step}: {said}"
    status, said = job.run(tmp_path, 2, SCRIPT, where, 0, result)
    assert status == 0, f"killed at step {step}: {said}"
    assert_equal(pickle.loads(result.read_bytes()), whole(ranks, 2, "with_everything")[0])


def frames_of(folder: str) -> list[dict[str, Any]]:
    frames: list[Any] = []
    options = tnt.Checkpoint(folder, every_steps=1, run="plain")
    with tnt.distributed(report=frames.append, checkpoint=options):
        interrupted.plain([Patient(Path(folder))])
    return [codec.decode_frame(codec.encode(frame)) for frame in frames]


class Patient(keras.callbacks.Callback):
    """Ends an epoch when there is a checkpoint that was not there before."""

    def __init__(self, where: Path) -> None:
        super().__init__()
        self._where, self._before = where, folder.whole(where)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        eventually(lambda: set(folder.whole(self._where)) - set(self._before))


def test_frames_have_the_epochs_before_and_say_which_checkpoint_is_on_disk(ranks, tmp_path):
    assert ranks.run(2, cell, "plain", str(tmp_path), 7) == ["broken off"] * 2
    frames, others = ranks.run(2, frames_of, str(tmp_path))
    assert [row["epoch"] for row in frames[-1]["rows"]] == [1, 2, 3] and not others
    told = [frame["checkpoint"] for frame in frames if "checkpoint" in frame]
    assert told and {(t["epoch"], t["step"]) for t in told} <= {(2, 3), (2, 4), (2, 5), (3, 1)}
