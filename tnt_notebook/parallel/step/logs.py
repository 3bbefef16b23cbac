"""Logs of the global batch: metrics and votes of all ranks, in one small exchange.

It starts when the forward pass is done, and is hidden behind backpropagation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.errors import DifferentDataError
from tnt_notebook.keras.tensorflow import wide
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.data.shard import MODULUS
from tnt_notebook.parallel.step.combine import Change, Part, assign, summand
from tnt_notebook.parallel.step.step import NEWS, Step


def global_logs(
    step: Step,
    logs: dict[str, Any],
    changes: Sequence[Change],
    votes: tf.Variable,
) -> dict[str, Any]:
    """The logs of the global batch: of metrics, whose states are those of one process afterwards,
    and other values averaged.

    Args:
        changes: of the states of metrics, in the same order on all ranks.
        votes: of this rank.
    """
    share, changed = step.share, {id(v) for v in step.assigned}
    of_metrics = results(step.model, logs, changed)
    others = {name: value for name, value in logs.items() if name not in of_metrics}
    head = tf.unstack(head_of(share, votes)[0])
    others = {name: of_part(value, step.scale) for name, value in others.items()}
    (mark, square, *votes_of_all), means = summed(step.part, head, changes, others)
    news = news_of(share, step.over.size, [mark, square, *votes_of_all])
    found = {**results(step.model, logs, changed), **means}
    return {**{name: found[name] for name in logs}, NEWS: news}


def head_of(share: Share, votes: tf.Variable) -> list[tf.Tensor]:
    """What a rank tells the others beside its logs, a vector of float64."""
    head = [*marks_of(share.fingerprint), *tf.unstack(votes)]
    return [tf.stack([tf.cast(value, tf.float64) for value in head])]


def news_of(share: Share, size: int, sums: Sequence[tf.Tensor]) -> tf.Tensor:
    """What :data:`NEWS` is, of the sums over so many ranks of :func:`head_of`."""
    mark, square, *votes = sums
    return tf.stack([tf.cast(share.total, tf.float64), *votes, same_data([mark, square], size)])


def summed(
    part: Part,
    head: Sequence[Any],
    changes: Sequence[Change],
    others: Mapping[str, tf.Tensor],
    head_over: Communicator | None = None,
) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    """Gives the states of metrics the values that one process would have. Collective.

    Args:
        head: numbers that are summed.
        others: logs that are summed.
        head_over: over which ranks the head is, if not those that have parts.

    Returns:
        The sums over ranks of `head`, float64, and of `others`, floatx, at least float32.
    """
    parts = [tf.stack([tf.cast(value, tf.float64) for value in head])]
    own = [tf.reshape(summand(part, change, tf.float64), [-1]) for change in changes]
    parts += own
    parts += [tf.reshape(tf.cast(value, tf.float64), [-1]) for value in others.values()]
    counts = [len(head), *(numbers.shape[0] for numbers in parts[1:])]
    (every,) = ops.allreduce(
        [tf.concat(parts, 0)], label="allreduce of metrics and votes", over=part.over
    )
    values = tf.split(every, counts)
    if head_over is not None:
        (values[0],) = ops.allreduce([parts[0]], label="allreduce of votes", over=head_over)
    states = zip(changes, values[1 : 1 + len(changes)], strict=True)
    assign(part, changes, {id(change.variable): value for change, value in states})
    means = zip(others.items(), values[1 + len(changes) :], strict=True)
    kind = wide(keras.config.floatx())
    return tf.unstack(values[0]), {
        name: tf.cast(tf.reshape(mean, value.shape), kind) for (name, value), mean in means
    }


def of_part(value: Any, scale: tf.Tensor) -> tf.Tensor:
    """What a rank adds to the mean over samples of a value, float64.

    Args:
        scale: its share of them, float64.
    """
    # A NaN of a borrowed sample times 0 would still be a NaN.
    return tf.where(scale > 0, tf.cast(value, tf.float64) * scale, 0.0)


def results(model: keras.Model, logs: Collection[str], changed: set[int]) -> dict[str, Any]:
    """Of the logs, those that are results of metrics: of metrics that the step has updated, by
    their names, or by those in their result. Keras's own steps return the results of all.

    Args:
        changed: ids of the variables that the step has changed.
    """
    of_all = set(logs) == set(model.get_metrics_result())
    found: dict[str, Any] = {}
    for metric in model.metrics:
        if of_all or any(id(v) in changed for v in metric.variables):
            result = metric.result()
            found |= {metric.name: result, **(result if isinstance(result, dict) else {})}
    named = {name: result for name, result in found.items() if name in logs}
    # A result may be a variable, whose value is that of the scope in which it is read.
    whole: dict[str, Any] = keras.tree.map_structure(tf.convert_to_tensor, named)
    return whole


def check_same_data(same: Any) -> None:
    """Raises where :func:`same_data` is 0, on all ranks."""
    if not same:
        raise DifferentDataError(
            "The ranks read different batches. The input must be the same on all ranks, each takes "
            "its slice of it: call keras.utils.set_random_seed(...) before shuffling or generating "
            "it, leave num_parallel_calls out of a map() that draws random numbers (its calls "
            "draw in a random order), and make sure that it does not depend on the rank."
        )


def check_same_samples(over: Communicator, fingerprint: str) -> None:
    """Raises on all ranks where they have been given different samples. Collective.

    Args:
        fingerprint: of those of this rank.

    Raises:
        DifferentDataError
    """
    if over.size == 1:
        return
    everyone = [each.decode() for each in over.allgather_bytes(fingerprint.encode())]
    odd = [rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]]
    if odd:
        raise DifferentDataError(
            f"Ranks {odd} got different samples from rank 0, and all ranks share the work on the "
            "same ones. Give every rank the same arrays or files: pass a seed to whatever draws or "
            "splits them, as in np.random.default_rng(0) or train_test_split(..., random_state=0), "
            "and make sure that they do not depend on the rank."
        )


def marks_of(fingerprint: tf.Tensor) -> list[tf.Tensor]:
    """What tells, summed over ranks, whether all have the same fingerprint: it, and its square."""
    mark = fingerprint % MODULUS
    return [mark, mark * mark]


def same_data(marks: Sequence[tf.Tensor], size: int) -> tf.Tensor:
    """1 if all ranks have cut the same global batches, else 0; on all ranks alike.

    Args:
        marks: the sums of :func:`marks_of`, of as many ranks as `size`.
    """
    # The mean of squares is the square of the mean if there is no variance. Products that overflow
    # do so on both sides.
    mark, square = (tf.cast(summed, tf.int64) for summed in marks)
    return tf.cast(tf.equal(square * size, mark * mark), tf.float64)
