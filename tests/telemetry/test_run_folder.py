"""Runs on disk: what is written is what is read, within bounds, and for its owner only."""

import itertools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dashboard.runs import frames_of_a_run, frames_of_an_evaluation
from tests.telemetry.kept_runs import STEP, frames_with_steps, keep
from tnt_notebook import telemetry
from tnt_notebook.errors import TntError, TraceError
from tnt_notebook.telemetry import Recorder, archive, bounds, chrome, codec, run_folder, run_writer
from tnt_notebook.telemetry.run_reader import Reader, read


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TNT_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def spread(frames, gap=0.25):
    """The same frames, far enough apart that each is written."""
    for i, frame in enumerate(frames):
        frame["time"] = i * gap
    return frames


def test_what_is_written_is_read():
    frames = spread(frames_with_steps()) + frames_of_an_evaluation()
    again = read(keep(frames))
    assert len(again) == len(frames)
    assert [frame["samples"] for frame in again] == [frame["samples"] for frame in frames]
    assert telemetry.epoch_rows(again[:-6]) == telemetry.epoch_rows(frames[:-6])
    assert [f["rows"] for f in again if "rows" in f] == [f["rows"] for f in frames if "rows" in f]
    assert again[-1] == frames[-1]
    # Of step traces the latest is there, and fewer of the earlier ones.
    assert telemetry.median_step(again) == telemetry.median_step(frames)
    assert 3 < sum("step_trace" in frame for frame in again) < len(frames)


def test_epochs_are_written_once():
    folder = keep(spread(frames_of_a_run(epochs=50, steps=2)))
    lines = [json.loads(line) for line in run_folder.part(folder, 0).read_bytes().splitlines()]
    assert [row["epoch"] for line in lines for row in line.get("rows", [])] == [*range(1, 51)]


def test_of_more_than_four_frames_a_second_nothing_but_points_is_lost():
    recorder = Recorder(1, epochs=400, start=0.0)
    frames = []
    for i in range(400):
        recorder.step(i + 1, 1, 1, {"loss": 1.0}, [8], 0.01 * i)
        recorder.epoch_end(i + 1, {"loss": 1.0}, 0.01 * i)
        frames.append(recorder.frame(0.01 * i))
    folder = keep(frames, close=False)
    again = read(folder)
    assert 15 <= len(again) <= 17
    assert again[-1]["rows"][-1]["epoch"] > 370
    keep_last = keep([*frames, recorder.frame(4.0, "finished")])
    assert telemetry.epoch_rows(read(keep_last)) == telemetry.epoch_rows(frames)


def test_a_run_is_bounded_and_keeps_its_beginning_and_its_end(base):
    frames = spread(frames_of_a_run(ranks=8, epochs=40, steps=100))
    writer = run_writer.begin("long", 8, part_bytes=20_000, run_bytes=100_000)
    largest = 0
    for frame in frames:
        writer.write(frame)
        sizes = [path.stat().st_size for path in run_folder.parts(writer.folder).values()]
        largest = max(largest, sum(sizes))
    writer.close()
    assert 90_000 < largest <= 100_000
    numbers = list(run_folder.parts(writer.folder))
    assert numbers[0] == 0 and len(numbers) == 5 and numbers[-1] > 10
    again = read(writer.folder)
    assert (again[0]["seq"], again[-1]["seq"]) == (frames[0]["seq"], frames[-1]["seq"])
    # Every part has all epochs again.
    assert telemetry.epoch_rows(again) == telemetry.epoch_rows(frames)


def test_step_traces_of_a_long_run_are_few_and_the_latest_is_there():
    step = frames_with_steps(until=2)[-1]["step_trace"]
    frames = frames_of_a_run(epochs=40, steps=1800)[:-1]  # two hours
    writing = run_writer._Pending()
    written = [writing.take({**frame, "step_trace": step}) for frame in frames]
    times = [frame["elapsed"] for frame in written if frame and "step_trace" in frame]
    assert 100 < len(times) < 200
    assert all(later < 1.06 * sooner + 0.8 for sooner, later in itertools.pairwise(times))


def test_a_notebook_keeps_few_step_traces_evenly_spread_and_the_latest():
    step = frames_with_steps(until=2)[-1]["step_trace"]
    frames = frames_of_a_run(epochs=4, steps=500)
    kept = bounds.Bounded(10_000, 16)
    for frame in frames:
        kept.add({**frame, "step_trace": step})
        assert "step_trace" in kept.frames[-1]
    times = [frame["elapsed"] for frame in kept.frames if "step_trace" in frame]
    assert len(kept.frames) == len(frames) and 50 < len(times) <= bounds.MAX_STEPS
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert max(gaps) < 8 * frames[-1]["elapsed"] / bounds.MAX_STEPS


def test_only_the_owner_may_read(base):
    before = os.umask(0)
    try:
        folder = keep(frames_with_steps())
    finally:
        os.umask(before)
    assert stat.S_IMODE(base.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = sorted(os.listdir(folder))
    assert names == ["frames-0.jsonl", "run.json", "step.json"]
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in names} == {0o600}


def test_names_say_when_and_what():
    name = run_folder.new_name("MLP on Digits / größe!", 0.0)
    assert name[8] == "-" and name[15:-4] == "-mlp-on-digits-grosse-".replace("grosse", "groe")
    assert run_folder.slug("../..") == "run" and len(run_folder.slug("x" * 99)) == 40


def test_runs_lie_below_the_users_folder_for_data(monkeypatch, tmp_path):
    monkeypatch.delenv("TNT_RUNS_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run_folder.base() == tmp_path / "tnt_notebook" / "runs"


def test_a_last_line_that_was_not_written_to_its_end_is_left_out():
    frames = spread(frames_of_a_run())
    folder = keep(frames, close=False)
    file = run_folder.part(folder, 0)
    whole = file.read_bytes()
    for left, lines in ((whole[:-40], len(frames) - 1), (whole[:1], 0), (b"", 0)):
        file.write_bytes(left)
        assert len(read(folder)) == lines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"v": 1', "line 3: this is not JSON"),
        (b"\xff\xfe\x00", "line 3: this is not JSON"),
        (b"", "line 3: this is not JSON"),
        (b"NaN", "line 3: this is not JSON"),
        (b"[]", "line 3: this is not a frame"),
        (b'{"v": 1}', "line 3: a frame without 'seq'"),
        (b"[" * 100_000, "line 3: this is nested too deeply"),
        (b'{"v": 4, "new": 1}', "newer version: frames of version 4, and this tnt_notebook reads"),
    ],
)
def test_what_is_no_frame_is_named_with_file_and_line(line, message):
    folder = keep(spread(frames_of_a_run()))
    file = run_folder.part(folder, 0)
    lines = file.read_bytes().splitlines()
    lines[2] = line
    file.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(TraceError) as raised:
        read(folder)
    assert message in str(raised.value) and str(file) in str(raised.value)


def test_frames_of_the_first_version_are_read():
    frames = spread(frames_with_steps())
    folder = keep(frames)
    file = run_folder.part(folder, 0)
    old = [json.loads(line) for line in file.read_bytes().splitlines()]
    for frame in old:
        frame["v"] = 1
        del frame["spent"]
        frame.pop("step_s", None)
        for of_rank in frame.get("breakdown", []):
            del of_rank[6], of_rank[3]  # conversion and skew
    file.write_text("".join(json.dumps(frame) + "\n" for frame in old))
    again = read(folder)
    assert telemetry.breakdowns(again) == [STEP] * 2
    assert telemetry.spent(again) is None and telemetry.median_step_s(again) is None


def test_values_that_cannot_be_are_refused():
    frame = frames_with_steps()[-1]
    step = frame["step_trace"]
    one = {"rank": 0, "stages": [0], "numbers": [0], "begins": [0], "lengths": [1]}
    wrong = [
        {"samples": []}, {"samples": [1, True]}, {"rates": [1.0]}, {"rates": [1.0, "2"]},
        {"state": "sleeping"}, {"state": ["running"]}, {"steps": -1}, {"elapsed": 10**400},
        {"logs": {"loss": "low"}}, {"sharing": 0}, {"rows": [{"loss": 1.0}]},
        {"breakdown": [[1.0] * 6]}, {"breakdown": [[1.0], [2.0]]}, {"step_trace": None},
        {"step_trace": step | {"tick": 0}}, {"step_trace": step | {"rows": [1]}},
        {"step_trace": step | {"rows": [one | {"kinds": "FF"}]}},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(ValueError, match="frame|step trace"):
            codec.decode_frame(json.dumps({**frame, **change}).encode())
    codec.decode_frame(json.dumps({**frame, "of a later version": 1}).encode())


@pytest.fixture(scope="module")
def some_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TNT_RUNS_DIR", str(tmp_path_factory.mktemp("some")))
        folder = keep(spread(frames_with_steps(until=12)))
        return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.integers(0, 60_000),
    wounds=st.lists(st.tuples(st.integers(0, 60_000), st.binary(max_size=6)), max_size=4),
    name=st.sampled_from(["frames-0.jsonl", "run.json", "step.json"]),
)
def test_damaged_files_are_an_error_or_a_shorter_run(base, some_run, cut, wounds, name):
    folder = base / "20260101-000000-x-0000"
    folder.mkdir(parents=True, exist_ok=True)
    for one, content in some_run.items():
        (folder / one).write_bytes(content)
    damaged = bytearray(some_run[name][: 1 + cut % len(some_run[name])])
    for at, what in wounds:
        at %= len(damaged)
        damaged[at : at + len(what)] = what
    (folder / name).write_bytes(damaged)
    (info,) = archive.listed()
    assert info.id == folder.name
    try:
        frames = read(folder)
    except TntError:
        return
    # What was read can be analysed and exported.
    for run in telemetry.runs(frames):
        telemetry.rates(run)
        telemetry.breakdowns(run)
    chrome.chrome_trace(frames)


def test_a_reader_reads_on_while_the_run_is_written():
    frames = spread(frames_with_steps(epochs=6))
    writer = run_writer.begin("x", 2, part_bytes=10_000, run_bytes=200_000)
    reader, seen = Reader(writer.folder), []
    for frame in frames:
        writer.write(frame)
        new = reader.new()
        assert [f["seq"] for f in new] == [frame["seq"]]
        assert new[-1]["step_trace"] == frame["step_trace"]
        seen += new
    assert reader.new() == []
    assert telemetry.epoch_rows(seen) == telemetry.epoch_rows(frames)
    assert len(run_folder.parts(writer.folder)) > 2
    writer.close()


def test_a_folder_that_is_gone_is_an_error(base):
    with pytest.raises(TraceError, match="cannot be read: No such file or directory"):
        read(base / "gone")
