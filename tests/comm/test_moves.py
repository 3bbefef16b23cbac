"""From the boxes of an array that ranks have to those that they need, in one op."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.comm import _kernels, ops
from tnt_notebook.comm.channels import GRAPH
from tnt_notebook.parallel.layers.boxes import beyond, blocks, pieces
from tnt_notebook.telemetry.events import is_of

WORLDS = [None, {"transport": "mpi"}, {"nodes": (0, 0, 1)}]
#: Of the array's dimensions 1 and 2; 0 and 3 are everybody's.
SIZES = (7, 5)
CHANNELS = 3


def cases(ranks):
    """What each rank has, and what it needs: along one dimension and two, from one to the other;
    halos, everything, nothing, what lies beyond the ends; and at random."""
    rows, columns = (blocks(size, ranks) for size in SIZES)
    whole = [(0, SIZES[0])] * ranks
    yield [{1: r} for r in rows], [{1: r} for r in whole]
    yield [{1: r} for r in rows], [{1: (b - 2, e + 1)} for b, e in rows]
    yield [{1: r, 2: (0, 5)} for r in rows], [{1: (0, 7), 2: c} for c in columns]
    yield [{2: c} for c in columns], [{2: (9, 12)}, *({2: (-3, c[1])} for c in columns[1:])]
    yield [{2: c} for c in columns], [{2: (2, 2)}, *({2: c} for c in columns[1:])]
    rng = np.random.default_rng(7)
    for _ in range(4):
        need = [
            {dim + 1: tuple(sorted(rng.integers(-2, size + 3, 2).tolist()))
             for dim, size in enumerate(SIZES)}
            for _ in range(ranks)
        ]  # fmt: skip
        yield [{1: r, 2: (0, 5)} for r in rows], need


def cut(array, box, fill):
    """A box of an array, filled beyond its ends."""
    inside, around = [slice(None)] * 4, [(0, 0)] * 4
    for dim, (begin, end) in box.items():
        inside[dim] = slice(max(0, begin), max(0, end))
        around[dim] = beyond((begin, end), array.shape[dim])
    return np.pad(array[tuple(inside)], around, constant_values=fill)


def added(parts, needs, have, shape):
    """The sum of boxes that may overlap, of a rank's box."""
    total = np.zeros(shape)
    for part, box in zip(parts, needs, strict=True):
        index, inner = [slice(None)] * 4, [slice(None)] * 4
        for dim, (begin, end) in box.items():
            low, high = max(0, begin), max(min(end, shape[dim]), max(0, begin))
            index[dim], inner[dim] = slice(low, high), slice(low - begin, high - begin)
        total[tuple(index)] += part[tuple(inner)]
    return cut(total, have, 0)


def there_and_back(batches):
    """All cases in one graph, for some sizes of the batch."""
    w = comm.world()
    chosen = list(cases(w.size))

    def array_of(batch):
        return np.arange(batch * 7 * 5 * CHANNELS).reshape(batch, *SIZES, CHANNELS) + 1.0

    @tf.function
    def run(given, summands):
        results = []
        with ops.channels():
            for x, dy, (have, need) in zip(given, summands, chosen, strict=True):
                there = [(p.source, p.target, p.box) for p in pieces(have, need)]
                back = [(target, source, box) for source, target, box in there]
                own, needed = have[w.rank], need[w.rank]
                results.append(ops.move(x, there, own, needed, -1.0, "there"))
                results.append(ops.move(dy, back, needed, own, 0.0, "back"))
        return results

    unknown = [None, None, None, CHANNELS]
    for batch in batches:
        array = array_of(batch)
        every = [
            [cut(array, box, 0) * (rank + 1) for rank, box in enumerate(need)] for _, need in chosen
        ]
        given = [tf.constant(cut(array, have[w.rank], 0)) for have, _ in chosen]
        results = run.get_concrete_function(
            [tf.TensorSpec(unknown, tf.float64)] * len(given),
            [tf.TensorSpec(unknown, tf.float64)] * len(given),
        )(*given, *(tf.constant(parts[w.rank]) for parts in every))
        for i, (have, need) in enumerate(chosen):
            there, back = results[2 * i], results[2 * i + 1]
            np.testing.assert_array_equal(there, cut(array, need[w.rank], -1))
            expected = added(every[i], need, have[w.rank], array.shape)
            np.testing.assert_allclose(back, expected, 1e-12, err_msg=f"{have}, {need}")


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_ranks_get_what_they_need_and_sums_of_what_comes_back(ranks, world):
    ranks.run(3, there_and_back, (2, 1, 0, 300), world=world)


def halves_swapped(dtype):
    """Two ranks swap the halves of an array of this type."""
    w = comm.world()
    numbers = tf.cast(tf.constant(np.arange(60).reshape(2, 10, 3) % 100), dtype)
    halves = [{1: (0, 5)}, {1: (5, 10)}]
    swap = [(0, 1, halves[0]), (1, 0, halves[1])]
    with ops.channels():
        x = numbers[:, 5 * w.rank : 5 * w.rank + 5]
        got = ops.move(x, swap, halves[w.rank], halves[1 - w.rank])
    np.testing.assert_array_equal(got, numbers[:, 5 - 5 * w.rank : 10 - 5 * w.rank])


@pytest.mark.parametrize("dtype", ops.MOVED_DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_is_moved(ranks, dtype):
    ranks.run(2, halves_swapped, dtype)


def refused(rows, needed, piece):
    """Rank 1 has so many rows, and needs these, of which that piece comes from rank 0."""
    w = comm.world()
    have, need = [{0: (0, 4)}, {0: (4, 8)}], [{0: (0, 4)}, {0: needed if w.rank else (3, 8)}]
    found = [(0, 1, {0: piece if w.rank else (3, 4)}), (1, 1, {0: (4, 8)})]
    with pytest.raises(tf.errors.OpError) as e, ops.channels():
        x = tf.ones([rows if w.rank else 4, 2])
        ops.move(x, found, have[w.rank], need[w.rank], label="halo of conv")
        ops.allreduce([tf.ones(1)], label="what comes next")
    w.recover()
    return str(e.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((4, (2, 8), (2, 4)), r"here halo of conv \(alltoallv of 1\d float32.*there alltoallv of"),
        ((3, (3, 8), (3, 4)), r"halo of conv: the tensor has 3 rows in dimension 0, not 4"),
    ],
    ids=["pieces", "rows"],
)
def test_what_does_not_fit_is_an_error_on_all(ranks, given, words):
    texts = ranks.run(2, refused, *given)
    assert all(re.search(words, text) for text in texts), texts


def outside(pieces_of, words):
    with pytest.raises(ValueError, match=words), ops.channels():
        ops.move(tf.ones([4, 2]), pieces_of, {0: (0, 4)}, {0: (1, 3)}, label="halo of conv")


@pytest.mark.parametrize(
    ("pieces_of", "words"),
    [
        ([(0, 0, {0: (0, 3)})], "halo of conv: the piece .* to rank 0 is not in the box"),
        ([(0, 1, {0: (0, 3)})], "halo of conv: there is no rank 1 among 1"),
    ],
    ids=["box", "rank"],
)
def test_a_piece_that_nobody_has_is_refused_before_anything_is_exchanged(ranks, pieces_of, words):
    ranks.run(1, outside, pieces_of, words)


def missed():
    """Rank 1 does not come; gives what rank 0 is told."""
    w = comm.world()
    text = ""
    w.set_timeout(0.5)
    if w.rank == 0:
        halves = [{0: (0, 1)}, {0: (1, 2)}]
        swap = [(0, 1, halves[0]), (1, 0, halves[1])]
        with pytest.raises(tf.errors.DeadlineExceededError) as e, ops.channels():
            ops.move(tf.ones(1), swap, halves[0], halves[1], label="halo of conv")
        text = str(e.value)
    while w.failure is None:
        pass
    w.set_timeout(60)
    w.recover()
    return text


@pytest.mark.parametrize("world", WORLDS[:2], ids=str)
def test_who_is_waited_for_is_named(ranks, world):
    text, _ = ranks.run(2, missed, world=world)
    assert re.search(r"rank 0: waited \d s for rank 1 in halo of conv", text), text


def traced():
    """The algorithms of exchanges on the channel of a move, and the bytes sent."""
    w = comm.world()
    before = w.traced()
    halves_swapped(tf.float32)
    events = w.trace(before)
    events = events[(events["channel"] == GRAPH.first) & is_of(events, "exchange")]
    return [(_kernels.algorithms()[e["algorithm"]][1], int(e["bytes"])) for e in events]


@pytest.mark.parametrize(
    ("world", "expected"),
    [(None, ("direct", 0)), ({"nodes": (0, 1)}, ("spread", 2 * 5 * 3 * 4))],
    ids=str,
)
def test_a_move_is_one_exchange_in_the_trace(ranks, world, expected):
    for found in ranks.run(2, traced, world=world):
        assert found == [expected]
