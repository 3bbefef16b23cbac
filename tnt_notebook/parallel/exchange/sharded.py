"""``sharded``: of each weight one rank alone sums the gradients, and keeps what the optimizer does.

::

    gradients of all ranks  ->  their sum, on the owner of the weight
                                its optimizer, with a part of the state
    weights of all ranks    <-  the new weight, from its owner
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.exchange import Apply, Exchange, ExchangeStep, Gradients, Variables
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.plan.buckets import BucketSizes, buckets_of
from tnt_notebook.plan.sharing import SMALL_BYTES, owners_of


@dataclass(frozen=True)
class Sharded(Exchange):
    """Sums the gradients of a weight on the rank that owns it, which applies the optimizer and
    gives all ranks the new weight. So each rank keeps a part of the optimizer's state, and applies
    it to a part of the weights; what travels is as much as in an allreduce. Whole weights have
    owners, so any optimizer works; small ones, such as biases, are trained by all ranks.

    Attributes:
        bucket_mb: the largest size of a bucket in MiB.
        small_kb: the size of a weight in KiB up to which all ranks train it.
    """

    source: ClassVar[str] = "Rajbhandari et al., ZeRO, SC 2020, stage 1 (optimizer states)"
    has_owners: ClassVar[bool] = True

    bucket_mb: float | None = None
    small_kb: float = SMALL_BYTES / 1024

    def __post_init__(self) -> None:
        Allreduce(bucket_mb=self.bucket_mb)  # checks it

    def owners(self, optimizers: Sequence[Sequence[keras.Variable]], size: int) -> dict[int, int]:
        owners: dict[int, int] = {}
        load = [0] * size
        for trained in optimizers:
            free = [v for v in trained if id(v) not in owners]
            dealt = owners_of([*map(_bytes, free)], load, self.small_kb * 1024)
            owners |= {id(free[place]): rank for place, rank in dealt.items()}
        return owners

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        result = list(gradients)
        owned = [
            i
            for i, (g, v) in enumerate(zip(gradients, variables, strict=True))
            if id(v) in step.owners and not isinstance(g, tf.IndexedSlices)
        ]
        for number, bucket in enumerate(self._buckets(owned, variables)):
            given = [tf.convert_to_tensor(gradients[i]) for i in bucket]
            label = f"sum on its owners of {_named(number, bucket, variables)}"
            owners = [step.owners[id(variables[i])] for i in bucket]
            summed = ops.reduce_to_owner(given, owners, step.scale, label, step.over)
            for i, own, gradient, owner in zip(bucket, given, summed, owners, strict=True):
                result[i] = _elsewhere(own, variables[i], owner) if gradient is None else gradient
        everyones = [i for i in range(len(result)) if i not in {*owned}]
        if everyones:
            some = [variables[i] for i in everyones]
            whole = Allreduce(bucket_mb=self.bucket_mb)
            summed = whole.gradients(step, [gradients[i] for i in everyones], some)
            for i, gradient in zip(everyones, summed, strict=True):
                result[i] = gradient
        return result

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        rank = step.over.rank
        trained = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        own = [(g, v) for g, v in trained if step.owners.get(id(v), rank) == rank]
        apply([g for g, _ in own], [v for _, v in own])
        self._share(step, [v for _, v in trained if id(v) in step.owners])

    def _share(self, step: ExchangeStep, variables: Sequence[keras.Variable]) -> None:
        """Gives all ranks what the owners have made of their weights."""
        for number, bucket in enumerate(self._buckets(range(len(variables)), variables)):
            owners = [step.owners[id(variables[i])] for i in bucket]
            values = [tf.identity(tensor_of(variables[i])) for i in bucket]
            label = f"{_named(number, bucket, variables)}, of their owners"
            shared = ops.share_owned(values, owners, label, step.over)
            for i, value, owner in zip(bucket, shared, owners, strict=True):
                if owner != step.over.rank:
                    tensor_of(variables[i]).assign(value)

    def _buckets(
        self, places: Collection[int], variables: Sequence[keras.Variable]
    ) -> Iterator[list[int]]:
        caps = BucketSizes.of(self.bucket_mb)
        some = [variables[i] for i in places]
        order = [*places]
        for bucket in buckets_of([*map(_bytes, some)], [str(v.dtype) for v in some], caps):
            yield [order[i] for i in bucket]


def _bytes(variable: keras.Variable) -> int:
    return int(math.prod(variable.shape) * tf.as_dtype(variable.dtype).size)


def _named(number: int, bucket: Sequence[int], variables: Sequence[keras.Variable]) -> str:
    return f"bucket {number} ({', '.join(variables[i].path for i in bucket)})"


def _elsewhere(gradient: tf.Tensor, variable: keras.Variable, owner: int) -> tf.Tensor:
    """In the place of a sum that is on another rank: an error for those that compute with it."""

    def refuse(_: Any) -> Any:
        raise ModelError(
            f"The exchange sharded sums the gradient of {variable.path} on rank {owner} only, and "
            "train_step uses it on all. Let the optimizer clip by the norm of all "
            "(global_clipnorm), or take the exchange allreduce."
        )

    # Without a state it is pruned where nobody does.
    refused = tf.numpy_function(refuse, [gradient], gradient.dtype, stateful=False)
    return tf.ensure_shape(refused, gradient.shape)
