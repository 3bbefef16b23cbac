"""Loaders of generated files, the storage before them, and datasets of one's own, measured."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.errors import DataError
from tnt_notebook.parallel.loading import samples
from tnt_notebook.parallel.loading.loaders import loader
from tnt_notebook.parallel.loading.measure import Question, measure
from tnt_notebook.parallel.loading.of_cell import ABSENT, measure_own
from tnt_notebook.parallel.loading.pipeline_parts import half_written, parts_of
from tnt_notebook.parallel.loading.storage import REQUEST_BYTES, Rates, Throttle
from tnt_notebook.plan.loading import FORMATS

HERE = [name for name in FORMATS if not samples.missing(name)]
SIDE = 16


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return samples.images(20, SIDE, 0)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("throttled", [False, True])
def test_each_format_gives_the_images_back_in_their_order(tmp_path, pixels, name, throttled):
    files = samples.written(name, pixels, tmp_path)
    throttle = Throttle(Rates(1e-5, 1e9)) if throttled else None
    (batch,) = loader(name, files, throttle, 3, 20, 0).take(1).as_numpy_iterator()
    assert batch.shape == (20, SIDE, SIDE, 3) and batch.dtype == np.uint8
    # Shards are read together, three of them; the others as they were written.
    order = [0, 1, 2] if name == "tfrecord" else [0, 1, 2, 3]
    apart = np.abs(batch[: len(order)].astype(int) - pixels[order])
    assert apart.mean() < (20 if name in ("jpeg", "tfrecord", "parquet") else 1e-9)
    assert (throttle is None) or throttle.waited_s > 0


def test_a_storage_is_as_slow_as_it_says():
    throttle = Throttle(Rates(0.02, 10e6))

    def took(requests: int, count: int) -> float:
        began = time.monotonic()
        throttle.hold(requests, count)
        return time.monotonic() - began

    assert took(2, 0) >= 0.04
    assert took(0, 400_000) >= 0.04
    # Calls that wait at the same time wait for their latencies together, and share the line.
    began = time.monotonic()
    content = tf.constant(b"." * 50_000)
    data = tf.data.Dataset.range(8).map(lambda _: throttle.file(content), num_parallel_calls=8)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 8
    assert len(list(data.with_options(options))) == 8
    elapsed = time.monotonic() - began
    assert elapsed >= 8 * 50_000 / 10e6 + 2 * 0.02
    assert throttle.waited_s > 8 * 0.04  # more than one after the other could have
    # A long file: of its records one in so many waits.
    whole = tf.data.Dataset.from_tensors(b"." * (REQUEST_BYTES // 4)).repeat(8)
    slow = Throttle(Rates(0.01, 1e9))
    began = time.monotonic()
    assert len(list(slow.stream(whole))) == 8
    assert 0.02 <= slow.waited_s <= time.monotonic() - began


def test_the_folder_goes_and_what_a_killed_rank_left_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = subprocess.Popen(["sleep", "600"])
    living = tmp_path / f"tnt-loading-{os.getppid()}-of-another"
    left = tmp_path / f"tnt-loading-{killed.pid}-left"
    for folder in (living, left):
        folder.mkdir()
    killed.kill()
    killed.wait(10)
    with pytest.raises(KeyboardInterrupt), samples.folder() as own:
        (own / "file").touch()
        assert {*tmp_path.iterdir()} == {own, living}
        raise KeyboardInterrupt
    assert [*tmp_path.iterdir()] == [living]


def test_a_question_says_how_much_time_it_needs():
    cases = Question(calls=(1, 4), prefetch=(0, 2), formats=("jpeg",)).cases()
    # Synthetic; and from each storage two numbers of calls, and the most without prefetch.
    assert len(cases) == 1 + 2 * 3
    with pytest.raises(ValueError, match=r"--seconds 0.5 is too short for 7 measurements"):
        Question(calls=(1, 4), formats=("jpeg",), seconds=0.5).cases()


def measured(formats: tuple[str, ...]) -> dict[str, Any]:
    told: list[dict[str, Any]] = []
    question = Question(
        formats, calls=(1,), prefetch=(0,), seconds=1.5, side=32, batch=1, count=16,
        latency_s=0.02, bytes_per_s=50e6,
    )  # fmt: skip
    result = measure(comm.world(), question, told.append)
    left = list(Path(tempfile.gettempdir()).glob(f"tnt-loading-{os.getpid()}-*"))
    return {**result, "told": told[-1]["done"], "of": told[-1]["total"], "left": left}


def test_ranks_measure_at_the_same_time(ranks):
    first, second = ranks.run(2, measured, ("jpeg", "parquet"))
    assert first == second and first["left"] == []
    assert (first["told"], first["of"]) == (4, 5) and first["ranks"] == 2
    by = {(row["format"], row.get("storage")): row for row in first["rows"]}
    synthetic, local = by["synthetic", "memory"], by["jpeg", "local"]
    slow = by["jpeg", "throttled"]
    assert len(local["rank_samples_per_s"]) == 2
    assert min(synthetic["samples_per_s"], local["samples_per_s"]) > 2 * slow["samples_per_s"]
    # One call, an open and a read of 20 ms each: 25 a second on each of two, and what was ready
    # when the clock began. On a machine that does other things, it may wait for a core longer.
    assert 0 < slow["samples_per_s"] <= 1.6 * 2 * 25 and slow["limit"] in ("latency", "cpu")
    if importlib.util.find_spec("pyarrow") is None:
        assert "pip install" in by["parquet", None]["missing"]
    else:
        assert by["parquet", "local"]["samples_per_s"] > 0


def slept(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_sleep, [x], tf.int64), ())


def _sleep(x: np.ndarray) -> np.ndarray:
    time.sleep(0.01)  # far longer than the other parts of the pipeline: the map is the slow one
    return x


class Halves(keras.utils.PyDataset):
    epochs = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, batch: int) -> np.ndarray:
        time.sleep(0.005)
        return np.full((8, 2), batch / 2)

    def on_epoch_end(self) -> None:
        self.epochs += 1


def own() -> tuple[dict[str, Any], str, str]:
    over = comm.world()
    data = tf.data.Dataset.range(64).map(slept).batch(8).prefetch(1)
    row = measure_own(over, "train", data, 1.0, True, over.size, lambda said: None)
    # Measured for another time on each rank, it is read in the same order afterwards.
    twin, shuffled = (data.unbatch().shuffle(64, seed=1).batch(8) for _ in range(2))
    measure_own(over, "shuffled", shuffled, 0.2 + 0.2 * over.rank, True, over.size, print)
    assert [list(one) for one in shuffled.as_numpy_iterator()] == [
        list(one) for one in twin.as_numpy_iterator()
    ]
    ended = Halves(workers=2)
    of_python = measure_own(over, "halves", ended, 0.3, True, over.size, print)
    assert of_python["reading"] == "every rank maps all: PyDataset" and not ended.epochs
    assert of_python["samples_per_s"] > 0 and of_python["limit"] in ("python", "cpu")
    whys = []
    for value in (ABSENT if over.rank else data, np.zeros(3)):
        with pytest.raises(DataError) as error:
            measure_own(over, "train", value, 1.0, True, over.size, lambda said: None)
        whys.append(str(error.value))
    return row, whys[0], whys[1]


def test_a_dataset_of_ones_own_says_where_its_time_goes(ranks):
    (row, missing, array), other = ranks.run(2, own)
    assert row == other[0] and (missing, array) == other[1:]
    assert 0 < row["samples_per_s"] <= 1.2 * 2 * 100 and row["calls"] == 1
    shares = {part["part"]: part["share"] for part in row["parts"]}
    assert list(shares) == ["read", "map", "batch"] and max(shares, key=shares.__getitem__) == "map"
    assert missing.startswith("On rank 1: 'train' is not defined in the cells")
    assert array == (
        "'train' is a ndarray: what is measured is a tf.data.Dataset of batches, or a "
        "keras.utils.PyDataset."
    )


def test_a_pipeline_is_cut_where_another_kind_of_work_begins(tmp_path):
    data = tf.data.Dataset.range(9)
    names = [p.name for p in parts_of(data.shuffle(9).map(abs).cache().map(abs).batch(3))]
    assert names == ["read", "map", "batch"]
    late = parts_of(data.batch(3).map(abs).prefetch(1))
    assert [(p.name, p.of_batches) for p in late] == [
        ("read", False), ("batch", True), ("map", True),
    ]  # fmt: skip
    # What comes before a filter cannot be counted in what comes behind.
    assert [p.name for p in parts_of(data.map(abs).filter(lambda x: x > 3).batch(2))] == [
        "read", "batch",
    ]  # fmt: skip
    again = parts_of(data.batch(3).unbatch().map(abs).batch(2))
    assert [(p.name, p.of_batches) for p in again] == [
        ("read", False), ("map", False), ("batch", True),
    ]  # fmt: skip
    every = next(iter(parts_of(data.batch(3))[0].without_end(4)))
    assert int(every) == 3  # the last of 0, 1, 2, 3
    file = str(tmp_path / "cache")
    assert half_written(data.cache(file).batch(2)) == file and not half_written(data.cache())
