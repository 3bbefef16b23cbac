"""What an exchange remembers from step to step on one rank: variables, made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.errors import CheckpointError
from tnt_notebook.keras.tensorflow import made_while_tracing

#: What becomes of a value when training goes on on another number of ranks: all have the same one;
#: their sum counts; their sum does, each multiplied by the rank's :data:`SHARE` of the batch.
RULES = ("same", "sum", "weighted")

SHARE = "share"
_NUMBER = "step"


class ExchangeState:
    """The variables that the exchange of one model has on this rank, by name.

    A checkpoint may be read before they are made: then they are made of what it holds.

    Attributes:
        traced: what the exchange has to know in Python of the step that was traced.
    """

    def __init__(self, trained: Sequence[keras.Variable]) -> None:
        """`trained`: all variables that may have some, in an order that does not change."""
        self._places = {id(v): place for place, v in enumerate(trained)}
        self._variables: dict[str, tf.Variable] = {}
        self._rules: dict[str, str] = {}
        self._restored: dict[str, np.ndarray] = {}
        self.traced: dict[Any, Any] = {}

    @property
    def number(self) -> tf.Variable:
        """How many steps there were, int64."""
        return self.variable(_NUMBER, None, tf.TensorSpec([], tf.int64), "same")

    def count(self) -> None:
        """A step has been done: called at the end of each, where it is traced."""
        if _NUMBER in self._variables:
            self._variables[_NUMBER].assign_add(1)

    def variable(
        self,
        name: str,
        of: keras.Variable | None,
        like: tf.Tensor | tf.TensorSpec,
        rule: str,
        initial: Callable[[], np.ndarray] | None = None,
    ) -> tf.Variable:
        """See :meth:`~tnt_notebook.parallel.exchange.ExchangeStep.keep`."""
        if rule not in RULES:
            raise ValueError(f"rule is one of {', '.join(RULES)}, not {rule!r}")
        key = self._key(name, of)
        if key not in self._variables:
            shape = [0 if size is None else size for size in like.shape]
            with tf.init_scope():
                begin = self._restored.pop(key, None)
                if begin is None:
                    begin = initial() if initial else np.zeros(shape, like.dtype.as_numpy_dtype)
            self._variables[key] = made_while_tracing(
                begin, dtype=like.dtype, shape=tf.TensorShape(like.shape),
                name=key.replace(" ", "_"),
            )  # fmt: skip
            self._rules[key] = rule
        return self._variables[key]

    def found(self, name: str, of: keras.Variable | None = None) -> tf.Variable | None:
        """A variable that there is already."""
        return self._variables.get(self._key(name, of))

    def _key(self, name: str, of: keras.Variable | None) -> str:
        if of is None:
            return name
        if id(of) not in self._places:
            raise ValueError(f"{of.path} is not a trainable variable of the model that trains")
        return f"{name} of {self._places[id(of)]}"

    # Checkpoints ------------------------------------------------------------------------------

    @property
    def rules(self) -> dict[str, str]:
        """Of each variable what becomes of it on another number of ranks."""
        return dict(self._rules)

    def values(self) -> dict[str, np.ndarray]:
        """Copies of all that this rank has."""
        return {key: variable.numpy() for key, variable in self._variables.items()}

    def restore(
        self,
        rules: Mapping[str, str],
        values: Sequence[Mapping[str, np.ndarray]],
        rank: int,
        size: int,
    ) -> None:
        """Takes over what the ranks of a checkpoint had.

        Args:
            rules: of each variable.
            values: of each rank that there was, by name of the variable.
            rank, size: of those that go on.

        Raises:
            CheckpointError: another number of ranks cannot go on with it.
        """
        for key, rule in rules.items():
            own = [of_rank[key] for of_rank in values]
            value: Any
            if len(values) == size:
                value = own[rank]
            elif key == SHARE:  # the first has all that the others had
                value = np.float64(rank == 0)
            elif rule == "same":
                value = own[0]
            elif rank != 0:
                value = np.zeros_like(own[0])
            else:
                shares = [of_rank[SHARE] if rule == "weighted" else 1 for of_rank in values]
                value = _summed(own, shares, key)
            if key in self._variables:
                self._variables[key].assign(value)
            else:
                self._restored[key] = value


def _summed(values: Sequence[np.ndarray], shares: Sequence[Any], key: str) -> Any:
    if len({value.shape for value in values}) > 1:
        raise CheckpointError(
            f"Each rank keeps state of its own for the exchange ({key}), in shapes that "
            f"differ, so training can continue only on as many ranks as before: {len(values)}."
        )
    total = sum(share * value for share, value in zip(shares, values, strict=True) if share)
    return np.asarray(total, values[0].dtype) + np.zeros_like(values[0])
