"""Each rank makes its own part of the input only, and the batches are those of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tnt_notebook as tnt
from tests.parallel.models import SAMPLES, classification, mlp
from tests.parallel.outcome import same_bits
from tests.support.cases import latin
from tnt_notebook.parallel.data import Replica, own_part, sharded, share_of
from tnt_notebook.telemetry import Frame

BATCH = 16  # the last batch has 2 samples: fewer than ranks
Data = tf.data.Dataset
Numbers = tf.Tensor


def times(x: Numbers) -> Numbers:
    return x * 3 + 1


def odd(x: Numbers) -> Numbers:
    return x % 3 > 0


def called(x: Numbers) -> Numbers:
    return tf.ensure_shape(tf.numpy_function(lambda v: v + 1, [x], tf.int64), ())


def drawn(x: Numbers) -> Numbers:
    return x + tf.random.uniform((), maxval=9, dtype=tf.int64, seed=5)


def drawn_of(x: Numbers) -> Numbers:
    return x + tf.random.stateless_uniform((), [7, x], maxval=9, dtype=tf.int64)


def of_files(number: Numbers) -> Data:
    return Data.range(number, number + 7)


def mapped_of_files(number: Numbers) -> Data:
    return of_files(number).map(times)


def in_parts(samples: Data) -> Data:
    parts = {"left": samples.map(times), "right": samples.map(times, num_parallel_calls=2)}
    return Data.zip((parts, samples.map(odd)))


def ragged(samples: Data) -> Data:
    return Data.from_tensor_slices(tf.ragged.constant([[1], [2, 3], [4]] * 5))


def sparse(number: Numbers) -> tf.SparseTensor:
    return tf.sparse.from_dense(tf.one_hot(number, SAMPLES))


def dense(batch: tf.SparseTensor) -> Numbers:
    return tf.sparse.to_dense(batch)


def length_of(window: Data) -> Numbers:
    return window.cardinality()


def generated(samples: Data) -> Data:
    spec = tf.TensorSpec((), tf.int64)
    return Data.from_generator(lambda: iter(range(20)), output_signature=spec)


#: From numbers to batches, and why every rank maps all; empty: each maps its own samples.
PIPELINES: dict[str, tuple[Callable[[Data], Data], str]] = {
    "shuffled": (lambda d: d.shuffle(SAMPLES, seed=3).map(times).batch(BATCH), ""),
    "shuffled by the global seed": (lambda d: d.shuffle(9).map(times).batch(BATCH), ""),
    "shuffled once": (
        lambda d: d.shuffle(9, reshuffle_each_iteration=False).map(times).cache().batch(7), ""
    ),
    "in parallel": (
        lambda d: d.shuffle(9).map(times, 2).map(times).prefetch(2).batch(7, False, 2), "",
    ),
    "drop_remainder": (lambda d: d.map(times).batch(BATCH, drop_remainder=True).prefetch(1), ""),
    "counted": (lambda d: d.shuffle(9).map(times).repeat(2).skip(3).take(77).batch(BATCH), ""),
    "batches counted": (lambda d: d.shuffle(9).map(times).batch(BATCH).repeat(2).skip(1), ""),
    "filtered": (lambda d: d.filter(odd).map(times).batch(BATCH), ""),
    "files": (
        lambda d: d.take(5).interleave(of_files, cycle_length=2).shuffle(9).map(times).batch(8), ""
    ),
    "in parts": (lambda d: in_parts(d.take(20)).batch(6), ""),
    "enumerated": (lambda d: d.map(times).enumerate().map(lambda i, x: i * x).batch(9), ""),
    "cached": (lambda d: d.map(times).cache().prefetch(1).batch(BATCH).cache(), ""),
    "ragged samples": (lambda d: ragged(d).map(tf.reduce_sum).batch(4), ""),
    "sparse samples": (lambda d: d.map(sparse).batch(4).map(dense), "map after batch"),
    "windows": (lambda d: d.window(4).map(length_of).batch(4), "map before batch"),
    "nothing": (lambda d: d.take(0).map(times).batch(4), ""),
    "not mapped": (lambda d: d.shuffle(9).batch(BATCH), ""),
    "of known length": (
        lambda d: d.filter(lambda x: x < 20).apply(tf.data.experimental.assert_cardinality(20))
        .map(times).batch(8), "",
    ),
    "options": (lambda d: d.map(times).with_options(tf.data.Options()).batch(8), ""),
    "Python in any order": (lambda d: d.map(called, num_parallel_calls=2).batch(8), ""),
    "drawn by place": (lambda d: d.map(drawn_of).batch(8), ""),
    "row-wise behind batch": (lambda d: d.map(times).batch(8).map(tnt.row_wise(odd)), ""),
    "in chunks": (
        lambda d: d.shuffle(9).batch(4).map(tnt.row_wise(times), 2).unbatch().map(odd).batch(8), "",
    ),
    "behind batch": (lambda d: d.map(times).batch(8).map(odd), "map after batch"),
    "before a shuffle": (lambda d: d.map(times).shuffle(9).map(odd).batch(8), "map before shuffle"),
    "before a filter": (lambda d: d.map(times).filter(odd).batch(8), "map before filter"),
    "cached in an order": (lambda d: d.shuffle(9).map(odd).cache().batch(8), "map before cache"),
    "cache repeated": (
        lambda d: d.map(times).cache().repeat(2).batch(BATCH), "map before cache"
    ),
    "inside interleave": (
        lambda d: d.take(5).interleave(mapped_of_files).map(times).batch(8), "map inside interleave"
    ),
    "padded": (lambda d: d.map(tf.range).padded_batch(8), "map before padded_batch"),
    "twice in batches": (lambda d: d.map(times).batch(2).batch(4), "map before batch"),
    "unbatched": (lambda d: d.map(times).batch(3).unbatch().batch(8), "map before batch"),
    "generator": (lambda d: generated(d).map(times).batch(6), "from_generator"),
    "Python in order": (
        lambda d: d.map(called).batch(8), "map calls Python, one sample after the other"
    ),
    "drawn in order": (lambda d: d.map(drawn).batch(8), "map draws seeded random numbers"),
}  # fmt: skip


#: Of so many ranks, which share batches unevenly.
SHARES = {3: (3, 1, 2)}


def made(make: Callable[[Data], Data]) -> Data:
    """As on a rank, or in a process, of its own."""
    tf.random.set_seed(1)
    return make(Data.range(SAMPLES))


def check(make: Callable[[Data], Data], size: int, why: str | None = None) -> None:
    """Joins what ranks have of two epochs."""
    plain = made(make)
    ranks = [Replica(rank, size, SHARES.get(size, ())) for rank in range(size)]
    parts = [own_part(made(make), one) for one in ranks]
    for dataset, reading in parts:
        assert why is None or reading.why == why
        assert dataset.cardinality() == plain.cardinality()
    for _ in range(2):
        for whole, *slices in zip(plain, *(dataset for dataset, _ in parts), strict=True):
            total = len(tf.nest.flatten(whole)[0])
            cuts = [share_of(total, Replica(rank, size)) for rank in range(size)]
            cuts = [share_of(total, one) for one in ranks]
            of_ranks = [(cut, *own) for cut, own in zip(cuts, slices, strict=True)]
            for (begin, end), own, share in of_ranks:
                assert (share.first, share.local, share.total) == (begin, end - begin, total)
                rows = tf.nest.map_structure(lambda leaf, n=end - begin: leaf[:n].numpy(), own)
                expected = tf.nest.map_structure(lambda leaf, b=begin, e=end: leaf[b:e], whole)
                same_bits(rows, tf.nest.map_structure(np.asarray, expected))
            assert len({int(share.fingerprint) for *_, share in of_ranks}) == 1


@pytest.mark.core
@pytest.mark.parametrize(("name", "size"), latin(PIPELINES, (3, 2, 4)))
def test_batches_are_those_of_one_process(name, size):
    check(PIPELINES[name][0], size, PIPELINES[name][1])


@pytest.mark.parametrize("length", ("known", "unknown"))
def test_of_the_last_batch_a_rank_may_have_more(length):
    def make(samples: Data) -> Data:
        chosen = samples.take(47) if length == "known" else samples.filter(lambda x: x < 47)
        return chosen.map(times).batch(8)

    check(make, 5, "")  # the third rank has 1 of 8 samples, and 2 of 7


#: Ops of a pipeline before its batch, and after it.
_BEFORE = {
    "map": lambda d: d.map(times),
    "map in parallel": lambda d: d.map(odd_or_more, num_parallel_calls=2),
    "shuffle": lambda d: d.shuffle(7, seed=2),
    "repeat": lambda d: d.repeat(2),
    "take": lambda d: d.take(37),
    "skip": lambda d: d.skip(5),
    "filter": lambda d: d.filter(odd),
    "cache": lambda d: d.cache(),
    "prefetch": lambda d: d.prefetch(3),
}
_AFTER = {
    "repeat": lambda d: d.repeat(2),
    "skip": lambda d: d.skip(1),
    "cache": lambda d: d.cache(),
    "row-wise": lambda d: d.map(tnt.row_wise(times)),
    "map": lambda d: d.map(times),
}


def odd_or_more(x: Numbers) -> Numbers:
    return x // 2


@settings(max_examples=15, derandomize=True, database=None)
@given(
    st.lists(st.sampled_from(sorted(_BEFORE)), min_size=1, max_size=5),
    st.lists(st.sampled_from(sorted(_AFTER)), max_size=2),
    st.integers(1, 11),
    st.booleans(),
)
def test_any_composition(before, after, batch, drop):
    def make(samples: Data) -> Data:
        for name in before:
            samples = _BEFORE[name](samples)
        batches = samples.batch(batch, drop_remainder=drop)
        for name in after:
            batches = _AFTER[name](batches)
        return batches

    check(make, 3)


class Counting:
    """Maps numbers, and remembers which."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, x: Numbers) -> Numbers:
        def mapped(value: np.ndarray) -> np.ndarray:
            self.seen.append(int(value))
            return value

        return tf.ensure_shape(tf.numpy_function(mapped, [x], tf.int64), ())


@pytest.mark.parametrize("size", (1, 2, 4))
def test_a_rank_maps_its_part(size):
    seen = []
    for rank in range(size):
        count = Counting()
        mapped = made(lambda d, f=count: d.shuffle(9).map(f, num_parallel_calls=2).batch(12))
        dataset, _ = own_part(mapped, Replica(rank, size))
        # Of 12 samples, 4 times, and of 2: a rank without one of them borrows it.
        (own,) = {sum(max(int(share.local), 1) for _, share in dataset)}
        assert len(count.seen) == own <= -(-SAMPLES // size)
        seen.append(set(count.seen))
    assert set.union(*seen) == set(range(SAMPLES))


def test_caches_hold_a_ranks_part(tmp_path):
    name = str(tmp_path / "kept")
    for file, epochs in (("", 3), (name, 3), (name, 1)):
        for rank in range(2):
            count = Counting()
            make = made(lambda d, f=count, n=file: d.map(f, 2).cache(n).batch(10))
            for _ in range(epochs):  # whoever asks again has the same cache
                list(own_part(make, Replica(rank, 2))[0])
            assert len(count.seen) == (0 if epochs == 1 else SAMPLES // 2)
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {
        f"kept-rank-{rank}-of-2-of-batches-of-10" for rank in range(2)
    }


def test_other_samples_have_another_fingerprint():
    marks = []
    for seed in (1, 2):
        dataset, _ = own_part(
            Data.range(SAMPLES).shuffle(SAMPLES, seed).map(times).batch(25), Replica(0, 2)
        )
        marks.append([int(share.fingerprint) for _, share in dataset])
    assert not set(marks[0]) & set(marks[1])


class Images(keras.utils.PyDataset):
    """Makes some rows of a batch, too, and remembers which it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return 4

    def __getitem__(self, batch: int) -> Any:
        return self.rows_of(batch, 0, self.samples_of(batch))

    def samples_of(self, batch: int) -> int:
        return min(BATCH, SAMPLES - batch * BATCH)

    def rows_of(self, batch: int, begin: int, end: int) -> Any:
        self.asked.append((batch, begin, end))
        x, y = classification()
        rows = slice(batch * BATCH + begin, batch * BATCH + end)
        return x[rows], y[rows]


@pytest.mark.filterwarnings("ignore:.*shuffle=True")
def test_a_py_dataset_is_asked_for_rows():
    images = Images()
    data = sharded(Replica(1, 3), images)
    assert str(data.reading) == "" and data.steps == 4
    slices = list(data.dataset)
    assert [int(share.local) for _, share in slices] == [5, 5, 5, 1]
    same_bits(slices[1][0], images.rows_of(1, 5, 10))
    assert {end - begin for _, begin, end in images.asked} == {5, 1}
    weighted = sharded(Replica(1, 3), images, class_weight={0: 1, 1: 2, 2: 5})
    assert str(weighted.reading) == "every rank maps all: rows_of with class_weight"


def fits() -> list[tuple[int, str]]:
    """Of two fits, which map before and after they shuffle, what `fit_on` gives."""
    return [fit_on("late"), fit_on("early")]


def fit_on(kind: str) -> tuple[int, str]:
    """Of a fit of two epochs the samples that this rank mapped, and what the view says of input."""
    count = Counting()

    def loaded(number: Numbers) -> Any:
        x, y = (tf.constant(array) for array in classification())
        return tf.gather(x, count(number)), tf.gather(y, number)

    samples = Data.range(SAMPLES)
    if kind == "late":
        samples = samples.map(loaded, 2).shuffle(SAMPLES, seed=3)
    else:
        samples = samples.shuffle(SAMPLES, seed=3).map(loaded, 2)
    keras.utils.set_random_seed(7)
    model = mlp()
    frames: list[Frame] = []
    distributed = tnt.Model(model)
    distributed._session.report = frames.append
    distributed.fit(samples.batch(10), epochs=2, verbose=0)
    said = {frame.get("input", "") for frame in frames}
    return len(count.seen), said.pop() if said else ""


def test_fit_says_who_maps_what(ranks):
    late, early = "every rank maps all: map before shuffle", ""
    for rank, (of_late, of_early) in enumerate(ranks.run(2, fits)):
        assert of_late == (2 * SAMPLES, "" if rank else late)  # rank 0 speaks for all
        assert of_early == (SAMPLES, early)
