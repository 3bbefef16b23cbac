"""Readers of files: samples are those that were written, a rank reads its own, and what cannot be
read is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf
import zarr

import tnt_notebook as tnt
from tests.parallel.models import from_logits
from tests.parallel.outcome import same_bits
from tests.parallel.test_input import check
from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data import Replica, own_part, skipped
from tnt_notebook.parallel.data.fingerprints import fingerprint_of_sources
from tnt_notebook.parallel.data.readers import damage
from tnt_notebook.parallel.data.readers.order import Blocks, numbers_of
from tnt_notebook.parallel.data.readers.samples import Source, dataset_of
from tnt_notebook.telemetry import Frame

Data = tf.data.Dataset
ROWS = 31
FEATURES = {
    "y": tf.io.FixedLenFeature((), tf.int64),
    "x": tf.io.FixedLenFeature((2, 3), tf.float32),
}


def x() -> np.ndarray:
    return np.arange(ROWS * 6, dtype="float32").reshape(ROWS, 2, 3) / 7


def y() -> np.ndarray:
    return np.arange(ROWS) % 5


def write(folder: Path) -> None:
    """The same samples in files of all formats; in two shards where that is possible."""
    np.save(folder / "x.npy", x())
    np.save(folder / "y.npy", y())
    with h5py.File(folder / "all.h5", "w") as file:
        file["x"], file["labels/y"] = x(), y()
    group = zarr.open_group(folder / "all.zarr", mode="w")
    group.create_array("x", data=x(), chunks=(4, 2, 3))
    group.create_array("y", data=y())
    for shard, part in enumerate((slice(0, 20), slice(20, ROWS))):
        lists = [row.ravel() for row in x()[part]]
        texts = [f"sample {i}" for i in range(ROWS)[part]]
        table = pyarrow.table({"y": y()[part], "x": lists, "text": texts})
        pyarrow.parquet.write_table(table, folder / f"{shard}.parquet", row_group_size=6)
        with tf.io.TFRecordWriter(str(folder / f"{shard}.tfrecord")) as writer:
            for label, row in zip(y()[part], x()[part], strict=True):
                writer.write(example(label, row))
    for i, label in enumerate(y()):
        of_class = folder / "images" / f"class-{label}"
        of_class.mkdir(parents=True, exist_ok=True)
        image = tf.fill((4, 3, 3), tf.constant(i, tf.uint8))  # its number
        (of_class / f"{i:02}.png").write_bytes(tf.io.encode_png(image).numpy())


def example(label: int, row: np.ndarray) -> bytes:
    features = {
        "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=row.ravel())),
    }
    made: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return made


#: Readers, and a sample as the index of what was written.
FORMATS: dict[str, tuple[Callable[..., Data], Callable[[Any], tuple[Any, Any]]]] = {
    "npy": (lambda at, **how: tnt.data.arrays(at / "x.npy", at / "y.npy", **how), lambda s: s),
    "memory": (lambda at, **how: tnt.data.arrays(x(), at / "y.npy", **how), lambda s: s),
    "hdf5": (lambda at, **how: tnt.data.hdf5(at / "all.h5", "x", "labels/y", **how), lambda s: s),
    "zarr": (lambda at, **how: tnt.data.zarr(at / "all.zarr", "x", "y", **how), lambda s: s),
    "parquet": (
        lambda at, **how: tnt.data.parquet(f"{at}/*.parquet", ["x", "y", "text"], **how),
        lambda s: (s["x"].reshape(2, 3), s["y"]),
    ),
    "tfrecord": (
        lambda at, **how: tnt.data.tfrecords(f"{at}/*.tfrecord", FEATURES, **how),
        lambda s: (s["x"], s["y"]),
    ),
    "images": (
        lambda at, **how: tnt.data.images(at / "images", **how),
        lambda s: (x()[s[0][0, 0, 0]], s[1]),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write(folder)
    return folder


def read(dataset: Data, sample: Callable[[Any], tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    rows, labels = zip(*map(sample, dataset.as_numpy_iterator()), strict=True)
    return np.stack(rows), np.array(labels)


@pytest.mark.parametrize("name", FORMATS)
def test_samples_are_those_that_were_written(files, name):
    make, sample = FORMATS[name]
    ordered, shuffled = make(files), make(files, shuffle=True, seed=1)
    assert ordered.cardinality() == ROWS
    assert all(leaf.shape.is_fully_defined() for leaf in tf.nest.flatten(ordered.element_spec))
    in_order = np.argsort(y(), kind="stable") if name == "images" else np.arange(ROWS)
    same_bits(read(ordered, sample), (x()[in_order], y()[in_order]))
    orders = [read(shuffled, sample)[0][:, 0, 0] * 7 // 6 for _ in range(2)]
    assert not np.array_equal(*orders)
    for order in orders:
        assert np.array_equal(np.sort(order.astype(int)), np.arange(ROWS))


@pytest.mark.parametrize("name", FORMATS)
def test_batches_of_ranks_are_those_of_one_process(files, name):
    make, _ = FORMATS[name]

    def batches(_: Data) -> Data:
        samples = make(files, shuffle=True)
        return samples.map(lambda *sample: sample, num_parallel_calls=2).repeat(2).batch(8)

    check(batches, 3, "")


def test_images_are_resized_as_tensorflow_does(files):
    (image, _), *_ = tnt.data.images(files / "images", size=(2, 6)).as_numpy_iterator()
    whole = tf.io.decode_png((files / "images" / "class-0" / "00.png").read_bytes(), channels=3)
    same_bits(image, tf.cast(tf.round(tf.image.resize(whole, (2, 6))), tf.uint8).numpy())


def test_text_and_other_orders_of_bytes(tmp_path):
    np.save(tmp_path / "text.npy", np.array(["é", "abc"]))
    np.save(tmp_path / "big.npy", np.array([1.5, -2], ">f4"))
    pairs = tnt.data.arrays(tmp_path / "text.npy", tmp_path / "big.npy").as_numpy_iterator()
    assert [*pairs] == [("é".encode(), 1.5), (b"abc", -2)]
    table = pyarrow.table({"text": ["é", "abc"], "number": [1, None]})
    pyarrow.parquet.write_table(table, tmp_path / "some.parquet")
    rows = tnt.data.parquet(tmp_path / "some.parquet", ["text"]).as_numpy_iterator()
    assert [row["text"] for row in rows] == ["é".encode(), b"abc"]
    with pytest.raises(tf.errors.OpError, match="row 1 of .*column number has no value there"):
        list(tnt.data.parquet(tmp_path / "some.parquet"))


def test_text_of_any_length(tmp_path):
    """As h5py and Zarr write it unless they are told otherwise."""
    words = ["é", "abc", ""]
    with h5py.File(tmp_path / "some.h5", "w") as file:
        file["words"] = words
        file.create_dataset("ragged", (2,), h5py.vlen_dtype(np.int32))
    group = zarr.open_group(tmp_path / "some.zarr", mode="w")
    group.create_array("words", shape=(3,), dtype=str)[:] = np.array(words, object)
    written = [word.encode() for word in words]
    for rows in (
        tnt.data.hdf5(tmp_path / "some.h5", "words"), tnt.data.zarr(tmp_path / "some.zarr", "words")
    ):  # fmt: skip
        assert [*rows.as_numpy_iterator()] == written
        assert fingerprint_of_sources(rows) == fingerprint_of_sources(rows)
    with pytest.raises(DataError, match="ragged in .* holds object, of which no tensor"):
        tnt.data.hdf5(tmp_path / "some.h5", "ragged")


def counted(read_by: list[int], count: int = 50) -> Source:
    """Numbers, which are counted when they are read."""

    def read(numbers: np.ndarray) -> list[np.ndarray]:
        read_by.extend(numbers.tolist())
        return [numbers * 3]

    return Source(count, tf.TensorSpec((), tf.int64), read, str, 8)


@pytest.mark.parametrize("size", (1, 2, 5))
def test_a_rank_reads_its_part(size):
    every: list[int] = []
    for rank in range(size):
        seen: list[int] = []
        samples = dataset_of(counted(seen), shuffle=True, seed=4).batch(10)
        dataset, reading = own_part(samples, Replica(rank, size))
        assert str(reading) == ""
        assert sum(int(share.local) for _, share in dataset) == len(seen) == 50 // size
        every += seen
    assert sorted(every) == list(range(50))


@pytest.mark.parametrize("size", (1, 2))
def test_batches_that_are_passed_over_are_not_read(size):
    seen: list[int] = []
    samples = dataset_of(counted(seen)).batch(10).prefetch(1)
    dataset, _ = own_part(samples, Replica(size - 1, size), 3)
    assert dataset.cardinality() == 2
    first = 30 if size == 1 else 35
    assert next(iter(dataset))[0].numpy().tolist() == list(range(3 * first, 3 * 40, 3))
    assert min(seen) == first


@pytest.mark.parametrize("shuffle", (False, True))
def test_ranks_read_whole_blocks_of_their_own(shuffle):
    ends = np.cumsum([7] * 40)
    order = np.array([*numbers_of(280, shuffle, 3, Blocks(ends, 32)).as_numpy_iterator()])
    assert np.array_equal(np.sort(order), np.arange(280))
    full = np.searchsorted(ends, order[:256], "right").reshape(8, 32)  # the blocks of batches
    for size in (1, 2, 4, 8):
        of_ranks = [set(np.split(full, size, axis=1)[rank].flat) for rank in range(size)]
        assert max(map(len, of_ranks)) <= 37 / size + 2
        assert sum(map(len, of_ranks)) <= 38 + size


@pytest.mark.parametrize("name", ("tfrecord", "parquet"))
def test_batches_of_whole_blocks_are_those_of_one_process(files, name):
    make, _ = FORMATS[name]
    check(lambda _: make(files, shuffle=True, batch=8).batch(8), 2, "")


def test_a_shuffle_behind_a_reader_is_named():
    shuffled = dataset_of(counted([])).shuffle(9).batch(10)
    assert own_part(shuffled, Replica(0, 2))[1].why == "map before shuffle"


def test_two_readers_side_by_side():
    seen: list[int] = []
    check(lambda _: Data.zip((dataset_of(counted([])), dataset_of(counted([])))).batch(8), 3, "")
    both = Data.zip((dataset_of(counted(seen)), Data.range(50))).batch(10)
    list(own_part(both, Replica(1, 2))[0])
    assert len(seen) == 25


# What cannot be read ----------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Images of which one is cut short, and records of which one has another byte."""
    write(tmp_path)
    cut = tmp_path / "images" / "class-1" / "01.png"
    cut.write_bytes(cut.read_bytes()[:30])
    flip(tmp_path / "0.tfrecord", -10)
    return tmp_path


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_what_is_damaged_or_missing_is_named(broken):
    images = tnt.data.images(broken / "images")
    with pytest.raises(tf.errors.OpError, match=r"01.png cannot be read: .*Repair or remove it"):
        list(images)
    (broken / "images" / "class-0" / "00.png").unlink()
    with pytest.raises(tf.errors.OpError, match=r"00.png cannot be read: the file is missing"):
        list(images)
    records = tnt.data.tfrecords(f"{broken}/*.tfrecord")
    with pytest.raises(
        tf.errors.OpError, match=r"record 19 of .*0.tfrecord cannot be read: .*DataL"
    ):
        list(records)


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_in_the_place_of_what_is_skipped_stands_the_next(broken):
    (at,) = [i for i, label in enumerate(np.argsort(y(), kind="stable")) if label == 1]
    make = partial(tnt.data.images, broken / "images", damaged="skip")
    damage.begin_run()
    firsts = [int(image[0, 0, 0]) for image, _ in make()]
    assert len(firsts) == ROWS and firsts[at] == firsts[at + 1] == 6
    assert [Path(each.where).name for each in damage.skipped_in_run()] == ["01.png"]
    assert damage.skipped_in_run()[0] in tnt.data.skipped()
    check(lambda _: make(shuffle=True).batch(8), 3, "")


def test_the_first_that_is_skipped_is_told_at_once(broken):
    flip(broken / "1.tfrecord", 2)  # the length of its first record: nothing can be found behind
    with pytest.warns(
        UserWarning, match=r"cannot be read: .*1.tfrecord \(the length of record 0 is"
    ):
        records = tnt.data.tfrecords(f"{broken}/*.tfrecord", damaged="skip")
        damage._seen.skipped.clear()
        flip(broken / "0.tfrecord", -10)  # whole again
        again = tnt.data.tfrecords(f"{broken}/*.tfrecord", damaged="skip")
    assert records.cardinality() == again.cardinality() == 20


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_all_damaged_is_an_error():
    def read(numbers: np.ndarray) -> list[np.ndarray]:
        raise OSError(5, "Input/output error")

    source = Source(9, tf.TensorSpec((), tf.int64), read, "sample {}".format, 4)
    with pytest.raises(tf.errors.OpError, match="none of the samples before it can be read"):
        list(dataset_of(source, damaged="skip"))


def refused(folder: Path) -> dict[str, tuple[Callable[[], Any], str]]:
    """What is refused, and why."""
    np.savez(folder / "x.npz", x=x())
    np.save(folder / "fortran.npy", np.asfortranarray(x()[:, 0]))
    np.save(folder / "short.npy", y()[:9])
    np.save(folder / "empty.npy", x()[:, :0])
    with tf.io.TFRecordWriter(str(folder / "packed"), tf.io.TFRecordOptions("GZIP")) as writer:
        writer.write(b"record")
    ragged = {"x": tf.io.VarLenFeature(tf.int64)}
    data, at = tnt.data, folder
    return {
        "missing": (lambda: data.arrays(at / "z.npy"), "There is no .*z.npy"),
        "pattern": (lambda: data.tfrecords(f"{at}/*.nothing"), "No file is named like .*nothing"),
        "npz": (lambda: data.arrays(at / "x.npz"), r"an .npz file.*np.save\("),
        "other": (lambda: data.arrays(at / "0.parquet"), "not a .npy file; write it with np.save"),
        "fortran": (lambda: data.arrays(at / "fortran.npy"), "np.ascontiguousarray"),
        "rows": (lambda: data.arrays(at / "x.npy", at / "short.npy"), "has 31, .*short.npy has 9"),
        "empty": (lambda: data.arrays(at / "empty.npy"), r"rows without values, of shape \(0, 3\)"),
        "compressed": (lambda: data.tfrecords(at / "packed"), "compressed.* use tf.data.TFRecord"),
        "features": (lambda: data.tfrecords(at / "0.tfrecord", ragged), "parse_single_example"),
        "no name": (lambda: data.hdf5(at / "all.h5"), "Name the datasets of .*; it has labels, x"),
        "no dataset": (lambda: data.hdf5(at / "all.h5", "z"), "no dataset z; it has labels, x"),
        "not HDF5": (lambda: data.hdf5(at / "x.npy", "x"), "cannot be read as HDF5"),
        "no array": (lambda: data.zarr(at / "all.zarr", "z"), "no array z; it has x, y"),
        "no column": (lambda: data.parquet(at / "0.parquet", ["z"]), "no column z; it has y, x"),
        "not Parquet": (lambda: data.parquet(at / "x.npy"), "x.npy cannot be read"),
        "no class": (lambda: data.images(at / "images" / "class-1"), "has no folders in it"),
    }


def test_what_is_refused_says_what_to_do(files):
    for name, (make, why) in refused(files).items():
        with pytest.raises(DataError, match=f"(?s){why}"):
            make()
            pytest.fail(f"{name} was not refused")


def test_a_library_that_is_missing_is_named(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"pip install h5py, or .*tnt_notebook\[data\]"):
        tnt.data.hdf5(files / "all.h5", "x")


def linear() -> keras.Model:
    model = keras.Sequential([keras.Input((2, 3)), keras.layers.Flatten(), keras.layers.Dense(5)])
    model.compile("sgd", from_logits())
    return model


def fit_damaged(folder: str, damaged: str) -> str:
    """Trains with records of which one is damaged; what the last frame says of it."""
    records = tnt.data.tfrecords(f"{folder}/*.tfrecord", FEATURES, damaged=damaged)
    samples = records.map(lambda r: (r["x"], r["y"]), num_parallel_calls=2)
    frames: list[Frame] = []
    distributed = tnt.Model(linear())
    distributed._session.report = frames.append
    distributed.fit(samples.batch(10), epochs=2, verbose=0)
    return frames[-1].get("skipped", "") if frames else ""


def test_fit_on_ranks_names_what_is_damaged(ranks, broken):
    first, second = ranks.outcomes(2, fit_damaged, str(broken), "raise")
    why = f"record 19 of {broken}/0.tfrecord cannot be read on rank 1: "
    assert first[0] == second[0] == "raised"
    assert f"DataError: {why}" in second[1].splitlines()[-1]
    assert "PeerError" in first[1] and why in first[1]
    told, nothing = ranks.run(2, fit_damaged, str(broken), "skip")
    assert told.startswith(
        f"1 sample could not be read, and was skipped, 1 on rank 1: record 19 of {broken}/0.tfrec"
    )
    assert nothing == ""


def test_what_ranks_have_skipped_is_said_in_a_sentence():
    one, other = "a.png (the file is missing)", "b.png (it ends)"
    assert skipped.told([(0, []), (0, [])]) == ""
    assert skipped.told([(1, [one])]) == f"1 sample could not be read, and was skipped: {one}"
    assert skipped.told([(2, [one, other]), (0, []), (1, [one])]) == (
        f"2 samples could not be read, and were skipped, 2 on rank 0, 1 on rank 2: {one}, {other}"
    )
    many = skipped.told([(900, list("abcdefg")), (0, [])])
    assert many.startswith("up to 900 samples") and many.endswith(": a, b, c, d, e, 895 more")


def test_columns_of_every_kind_are_read_exactly(tmp_path):
    arrow, large = pyarrow, 2**53 + 1  # which float64 has not
    columns = {
        "whole": (arrow.array([large, None, 3], arrow.int64()), [large, 3]),
        "list": (arrow.array([[large, 2], [3, None], [5, 6]]), [[large, 2], [5, 6]]),
        "truth": (arrow.array([True, None, False]), [True, False]),
        "kind": (arrow.array(["a", "b", "c"]).dictionary_encode(), [b"a", b"c"]),
        "time": (arrow.array([1, 2, 3], arrow.timestamp("us", "UTC")), [1, 3]),
        "price": (arrow.array([Decimal("1.25"), None, Decimal("2.5")]), [1.25, 2.5]),
        "day": (arrow.array([7, 8, 9], arrow.date32()), [7, 9]),
        "lists": (arrow.array([[[1, 2]], [[3, None]], [[5, 6]]]), [[[1, 2]], [[5, 6]]]),
        "words": (arrow.array([["a", "b"], None, ["c", "d"]]), [[b"a", b"b"], [b"c", b"d"]]),
        "ragged": (arrow.array([[large], [3, None], [5, 6]]), [[large], [5, 6]]),
        "half": (arrow.array(np.arange(3, dtype=np.float16)), [0.0, 2.0]),
    }
    table = arrow.table({name: column for name, (column, _) in columns.items()})
    pyarrow.parquet.write_table(table, tmp_path / "some.parquet")
    for name, (_, wanted) in columns.items():
        lacks_one = table.column(name).combine_chunks()[1].as_py() in (None, [3, None], [[3, None]])
        chosen = [name] if lacks_one else [name, "whole"]
        how = {"ragged": [name]} if name == "ragged" else {}
        rows = tnt.data.parquet(tmp_path / "some.parquet", chosen, damaged="skip", **how)
        found = [np.asarray(row[name]).tolist() for row in rows.as_numpy_iterator()]
        assert found[0] == wanted[0] and found[-1] == wanted[-1], name
    pyarrow.parquet.write_table(arrow.table({"a": [[1], [2, 3]]}), tmp_path / "uneven.parquet")
    with pytest.raises(tf.errors.OpError, match=r'row 1 of .* can be read with ragged=\["a"\]'):
        list(tnt.data.parquet(tmp_path / "uneven.parquet"))
    with pytest.raises(DataError, match="half is not a column of lists of numbers"):
        tnt.data.parquet(tmp_path / "some.parquet", ragged=["half"])
