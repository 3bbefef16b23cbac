"""An output of the model that is in blocks, and what is cut as it is: its labels and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import Communicator
from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.layout import Layout
from tnt_notebook.parallel.layers.ranks import MeshRanks


@dataclass(frozen=True)
class Output:
    """What this rank has of an output of the model.

    Attributes:
        block: the rows of this rank.
        shape: of the whole; known of dimensions that are cut.
        layout: by which dimensions it is cut.
        whole: gathers it, once.
    """

    block: tf.Tensor
    shape: Sequence[int | None]
    layout: Layout
    whole: Callable[[], tf.Tensor]


@dataclass(frozen=True)
class Weights:
    """Sample weights of a block, if there are any.

    Attributes:
        cut: the dimensions along which other blocks have others.
    """

    tensor: Any = None
    cut: frozenset[int] = frozenset()


class Divided:
    """An output in blocks, and what is cut as it is.

    Attributes:
        rows: of this rank's block, by dimension that is cut.
    """

    def __init__(
        self, output: Output, ranks: MeshRanks, splits: Sequence[tuple[int, str]] | None = None
    ) -> None:
        self._output, self._ranks = output, ranks
        self.block, self._shape = output.block, output.shape
        self._splits = output.layout.splits if splits is None else splits
        self.axes = [axis for _, axis in self._splits]
        self.rows: dict[int, Range] = {
            dim: blocks(self._size(dim), ranks.mesh.along(axis))[ranks.place[axis]]
            for dim, axis in self._splits
        }

    def of_classes(self) -> Divided:
        """As the last dimension alone is cut."""
        last = len(self._shape) - 1
        return Divided(self._output, self._ranks, [s for s in self._splits if s[0] == last])

    def of_others(self) -> Divided:
        """As the others are."""
        last = len(self._shape) - 1
        return Divided(self._output, self._ranks, [s for s in self._splits if s[0] != last])

    @property
    def classes(self) -> int:
        """The size of the last dimension."""
        return self._size(len(self._shape) - 1)

    @property
    def group(self) -> Communicator:
        """The ranks that have the other blocks."""
        return self._ranks.group(self.axes)

    @property
    def share(self) -> float:
        """How much of the whole this rank's block is."""
        return math.prod((e - b) / self._size(dim) for dim, (b, e) in self.rows.items())

    def has_whole(self, of: str) -> bool:
        """Whether this rank has whatever one number of a loss or metric is made of."""
        return of == "numbers" or len(self._shape) - 1 not in self.rows

    def labels(self, y_true: Any, squeezed: bool, sparse: bool) -> Any | None:
        """Those of the block; None if they are not cut as the output is.

        Args:
            squeezed: whether they may lack a last axis of one number.
            sparse: whether they may be one for all of the last axis.
        """
        rank = len(self._shape)
        if not isinstance(y_true, tf.Tensor) or y_true.shape.rank is None:
            return None
        if y_true.shape.rank == rank - 1:
            one = self._shape[-1] == 1
            if rank - 1 in self.rows or not (squeezed if one else sparse):
                return None
        elif y_true.shape.rank != rank:
            return None
        return self._cut(y_true, self.rows)

    def labels_of_classes(self, y_true: Any, sparse: bool) -> Any | None:
        """Those of the block, where it has some of the classes: numbers of classes without a last
        axis, or the likelihoods of these classes."""
        if not sparse:
            return self.labels(y_true, squeezed=False, sparse=False)
        labels = self.of_others().labels(y_true, squeezed=False, sparse=True)
        if labels is None or labels.shape.rank < len(self._shape):
            return labels
        return tf.squeeze(labels, -1) if labels.shape[-1] == 1 else None

    def weights(self, given: Any, y_true: Any, of_samples: bool = False) -> Weights | None:
        """Those of the block; None if it is not clear which these are.

        Args:
            of_samples: whether one weight of a sample is for all its values.
        """
        # What is weighted is a mean over the last axis.
        values = len(self._shape) - 1
        if self._shape[-1] == 1 and len(getattr(y_true, "shape", ())) == values:
            values -= 1
        if given is None:
            return Weights()
        if not isinstance(given, tf.Tensor) or given.shape.rank is None:
            return None
        own = given.shape.rank
        alike = own == values or (own == values + 1 and given.shape[-1] == 1)
        if not alike and not (of_samples and own == 1):
            return None
        rows = {d: r for d, r in self.rows.items() if d < own and given.shape[d] != 1}
        cut = self._cut(given, rows)
        return None if cut is None else Weights(cut, frozenset(rows))

    def weights_like_labels(self, given: Any, y_true: Any) -> Weights | None:
        """The same where each label has one."""
        if given is None:
            return Weights()
        if not isinstance(given, tf.Tensor) or given.shape.rank is None:
            return None
        rank = y_true.shape.rank
        if given.shape.rank != rank and (given.shape.rank != rank - 1 or y_true.shape[-1] != 1):
            return None
        cut = self._cut(given, self.rows)
        return None if cut is None else Weights(cut, frozenset(self.rows))

    def _cut(self, x: tf.Tensor, rows: dict[int, Range]) -> tf.Tensor | None:
        index = [slice(None)] * x.shape.rank
        for dim, (begin, end) in rows.items():
            if dim >= x.shape.rank or x.shape[dim] != self._size(dim):
                return None
            index[dim] = slice(begin, end)
        return x[tuple(index)]

    def _size(self, dim: int) -> int:
        size = self._shape[dim]
        assert size is not None
        return size
