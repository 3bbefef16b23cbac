"""State that the layers of a stage change themselves, over the micro-batches of a step.

    before the step   v
    micro-batch k     v -> v_k, which is kept, and v again
    after the step    what v_1, v_2, ... make, and what replicas make of that

Every micro-batch begins with the value from before the step. What they make of it combines as over
ranks (:mod:`tnt_notebook.parallel.step.combine`), or each makes a part of what it becomes
(:mod:`.part_call`): a count of steps counts a step once, and a moving mean moves once.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.state import tensor_of
from tnt_notebook.keras.tensorflow import made_while_tracing, wide
from tnt_notebook.parallel.step.combine import Change
from tnt_notebook.parallel.step.step import Step


class _Kept(NamedTuple):
    """What micro-batches have made of a variable so far, by its rule."""

    variable: keras.Variable
    rule: str
    so_far: tf.Variable


class StageState:
    """The state of one stage in one kind of step."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._number = _made((), tf.int64)

    def begin(self) -> None:
        """Before the first micro-batch. In the graph of a step."""
        self._number.assign(0)
        for kept in self._kept.values():
            kept.so_far.assign(tf.fill(kept.so_far.shape, _neutral(kept)))

    def keep(
        self,
        variable: keras.Variable,
        rule: str,
        before: tf.Tensor,
        samples: tf.Tensor,
        total: tf.Tensor,
    ) -> None:
        """Keeps what a micro-batch has made of a variable, which gets back its value from before.
        In the graph of a stage.

        Args:
            rule: by which it combines.
            samples: of the micro-batch, which has borrowed one if it is 0; int64.
            total: samples of the batch.
        """
        held = tensor_of(variable)
        if id(variable) not in self._kept:
            self._kept[id(variable)] = _Kept(variable, rule, _made(held.shape, _dtype(held, rule)))
        so_far = self._kept[id(variable)].so_far
        now, had = tf.cast(held.read_value(), so_far.dtype), so_far.read_value()
        if rule == "mean":
            weight = tf.cast(samples, tf.float64) / tf.cast(total, tf.float64)
            new = tf.where(samples > 0, had + now * tf.cast(weight, now.dtype), had)
        elif rule == "part":
            new = tf.where(samples > 0, had + now, had)
        elif rule == "sum":
            new = tf.where(samples > 0, had + now - tf.cast(before, now.dtype), had)
        elif rule in ("max", "min"):
            extreme = tf.maximum if rule == "max" else tf.minimum
            new = tf.where(samples > 0, extreme(had, now), had)
        else:  # "first", and "same"
            new = tf.where(self._number > 0, had, now)
        so_far.assign(new)
        held.assign(before)

    def count(self) -> None:
        """A micro-batch is done. In the graph of a stage."""
        self._number.assign_add(1)

    def finish(self, step: Step) -> list[Change]:
        """Gives the variables what all micro-batches of this replica have made of them. In the
        graph of a step."""
        changes = []
        for variable, rule, so_far in self._kept.values():
            held = tensor_of(variable)
            before, made = held.read_value(), so_far.read_value()
            if rule == "mean":
                scale = tf.cast(step.scale, made.dtype)
                made = tf.where(step.has_data, tf.math.divide_no_nan(made, scale), 0)
                made = tf.round(made) if not held.dtype.is_floating else made
            elif rule == "sum":
                made += tf.cast(before, made.dtype)
            if rule in ("mean", "max", "min"):
                made = tf.where(step.has_data, made, tf.cast(before, made.dtype))
            held.assign(tf.cast(made, held.dtype))
            if rule == "part":  # of all replicas
                changes.append(Change(variable, tf.zeros_like(before), "sum", always_adds=True))
            else:
                changes.append(Change(variable, before, rule))
        return changes


def _made(shape: tf.TensorShape | tuple[int, ...], dtype: tf.DType) -> tf.Variable:
    return made_while_tracing(np.zeros(tuple(shape), dtype.as_numpy_dtype))


def _dtype(held: tf.Variable, rule: str) -> tf.DType:
    if held.dtype.is_floating:
        return wide(held.dtype)
    return tf.float64 if rule == "mean" else tf.int64


def _neutral(kept: _Kept) -> tf.Tensor:
    dtype = kept.so_far.dtype
    value = {"max": dtype.min, "min": dtype.max}.get(kept.rule, 0)
    return tf.constant(value, dtype)
