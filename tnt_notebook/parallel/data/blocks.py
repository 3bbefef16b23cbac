"""Blocks of samples: ranks that divide the work on a sample take of it what each needs.

    a sample, 96 x 96 x 96 x 1      box {1: (24, 48)}      24 x 96 x 96 x 1

Of arrays and files nothing else is read; of other input the block is cut out of the batch before
anything else is done with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf

#: From an index up to another one, which is not in it.
_Range = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """What a rank takes of each sample of a tensor.

    Attributes:
        leaf: which tensor of the batch: its place among all, the structure flattened.
        shape: of a whole sample.
        box: some dimensions of a batch, so from 1 on, ascending; and of each, which rows are taken.
    """

    leaf: int
    shape: tuple[int, ...]
    box: tuple[tuple[int, _Range], ...]

    @property
    def index(self) -> tuple[slice, ...]:
        """What cuts it out of a whole sample."""
        taken = dict(self.box)
        return tuple(
            slice(*taken.get(dim, (0, size))) for dim, size in enumerate(self.shape, start=1)
        )

    @property
    def size(self) -> tuple[int, ...]:
        """The shape of the block of a sample."""
        return tuple(part.stop - part.start for part in self.index)


#: Of a batch, the tensors that are cut; all others are whole.
Blocks = tuple[Block, ...]

_TOLD = "what_it_reads"


class InBlocks(NamedTuple):
    """In the place of a batch: one whose samples are cut, see :func:`cut_blocks`."""

    batch: Any


def cut_blocks(batch: Any, blocks: Blocks) -> Any:
    """Of a batch of whole samples, any structure of tensors, the blocks.

    Raises:
        tf.errors.InvalidArgumentError: samples are of another shape than was known; in a graph,
            when it runs.
    """
    leaves = keras.tree.flatten(batch)
    for block in blocks:
        whole = tf.ensure_shape(leaves[block.leaf], [None, *block.shape])
        leaves[block.leaf] = whole[(slice(None), *block.index)]
    return keras.tree.pack_sequence_as(batch, leaves)


def gathered_block(array: tf.Tensor, samples: tf.Tensor, block: Block) -> tf.Tensor:
    """Of an array of whole samples, shape (samples, ...), the block of some of them. Nothing else
    of it is touched: where it is a map of a file, nothing else is read."""
    last = block.box[-1][0]
    sizes, parts = block.shape[:last], block.index[:last]
    rows = tf.cast(samples, tf.int64)
    for size, part in zip(sizes, parts, strict=True):
        rows = rows[..., None] * size + tf.range(part.start, part.stop, dtype=tf.int64)
    # Dimensions up to the last that is cut are one, along which rows lie one after the other.
    lines = tf.reshape(array, [-1, *block.shape[last:]])
    return tf.ensure_shape(tf.gather(lines, rows), [None, *block.size])


def lines_of(block: Block) -> Iterator[tuple[int, int]]:
    """The numbers of a block that lie together in a sample in C's order: from which one on, and how
    many, in their order."""
    last = block.box[-1][0]
    inner = math.prod(block.shape[last:])
    part = block.index[last - 1]
    strides = [math.prod(block.shape[dim:]) for dim in range(1, last)]
    for place in itertools.product(*(range(p.start, p.stop) for p in block.index[: last - 1])):
        first = sum(at * stride for at, stride in zip(place, strides, strict=True))
        yield first + part.start * inner, (part.stop - part.start) * inner


@dataclass(frozen=True)
class AboutReader:
    """What is known of a function that reads samples by their numbers.

    Attributes:
        reading_blocks: gives the function that reads blocks of them; None: there is none.
        fingerprint: a hash of some of what it reads.
    """

    reading_blocks: Callable[[Blocks], Callable[..., Any]] | None
    fingerprint: Callable[[], str]


def note_about(function: Callable[..., Any], told: AboutReader) -> Callable[..., Any]:
    """Says so of a function."""
    setattr(function, _TOLD, told)
    return function


def about_reader(function: Callable[..., Any]) -> AboutReader | None:
    """What was told of it."""
    return getattr(function, _TOLD, None)
