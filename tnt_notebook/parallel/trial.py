"""Tries a step on a whole batch and, on all ranks, on parts: are its gradients those of one
process, and by which rule does state combine?

    drawn by chance      every rank alone, all samples            all ranks, each its part
    a batch, a start ->  step -> what one process has      ~      step -> what each rank has
                                                  which rule makes this of those?

Both run as they will in training, but for what would hide the answer: the optimizer does nothing,
every sample draws the same random numbers, nothing is shuffled, and batch normalization uses its
moving statistics. Everything that was assigned gets its value back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.error_text import brief
from tnt_notebook.keras.optimizers import classes_with_own_apply, trained_by
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.keras.tensorflow import outside_of_tracing
from tnt_notebook.parallel import agreement
from tnt_notebook.parallel.alone import each_sample_alone
from tnt_notebook.parallel.combine import RULES
from tnt_notebook.parallel.data import Replica, Share, cut
from tnt_notebook.parallel.drawn import drawn, rounding
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.parallel.interpose import interposed
from tnt_notebook.parallel.step import Step

#: At most so many samples; with fewer ranks two for each, and one more for the last.
_SAMPLES = 9
#: Of larger variables so many elements are compared.
_ELEMENTS = 4096
#: From which values variables start: their own, and then where one process had left them, so that
#: what is done every other step is seen; at last, if they have not changed so far or a rule might
#: fit by rounding only, what is beyond the values that a batch could have.
STARTS = (None, None, None, 0.0, -1e3, 1e3)
_ORDER = ("same", "sum", "mean", "max", "min", "first")

#: Of one step, the sums of what optimizers were given, by path of the variable.
_Gradients = Mapping[str, Any]
#: Variables, and the values that they have.
_State = Sequence[tuple[tf.Variable, tf.Tensor]]


class Trial:
    """Tries a step at once. Made on all ranks at the same time.

    Args:
        step: that which has been traced.
        own_step: the model's.
        data: a batch like those to try it on, tensors or their specs.
        variables: state that it assigns.

    Attributes:
        fitting: the rules that made of the ranks' values that of one process, whenever it was
            tried; by id of the variable.
        changed: ids of the variables that the step has changed in any trial.
        apart: by path of a trained variable, how far the gradient that the ranks apply was from
            that of one process in all trials, as a part of its norm.
        in_half: whether the model computes in half precision.
        failure: why trials could not be made; empty if one was.
    """

    def __init__(
        self,
        step: Step,
        own_step: Callable[[Any], Any],
        data: Any,
        variables: Sequence[keras.Variable],
    ) -> None:
        self.fitting: dict[int, set[str]] = {id(v): set(RULES) for v in variables}
        self.changed: set[int] = set()
        self.apart: dict[str, float] = {}
        self.failure = ""
        self._over, self._variables = step.over, variables
        policy = getattr(step.model.dtype_policy, "compute_dtype", "float32")
        self.in_half = policy not in ("float32", "float64")
        self._rounding = rounding(self.in_half)
        with outside_of_tracing():
            self._run(step, own_step, data)
        decided = {str(i): sorted(self.fitting[id(v)]) for i, v in enumerate(variables)}
        changed = [i for i, v in enumerate(variables) if id(v) in self.changed]
        decided, changed, self.apart, self.failure = agreement.from_rank_0(
            step.over, [decided, changed, self.apart, self.failure]
        )
        self.fitting = {id(v): set(decided[str(i)]) for i, v in enumerate(variables)}
        self.changed = {id(variables[i]) for i in changed}

    def _run(self, step: Step, own_step: Callable[[Any], Any], data: Any) -> None:
        over, model = step.over, step.model
        chance, replica = np.random.default_rng(1), Replica(over.rank, over.size)

        def by_all(given: Any) -> None:
            part, share = given
            here = Step(over, Allreduce(), model, Share(*share))
            with ops.channels(channels.TRAINING), interposed(here):
                own_step(part)

        problem = ""
        try:
            batch = _drawn_batch(chance, data, over.size)
            alone = _traced(model, own_step, batch)
            together = _traced(model, by_all, cut(batch, replica))
        except Exception as error:  # it wants other values than these; with real ones it may do
            problem = brief(error)
        if not self._all_well(problem):
            return
        touched = [*alone.variables, *together.variables, *map(tensor_of, step.assigned)]
        saved = [(v, v.read_value()) for v in {id(v): v for v in touched}.values()]
        state: _State = saved
        try:
            for start in STARTS:
                tried = [v for v in self._variables if self._is_for(v, start)]
                if start is None or tried:
                    state = self._try(alone, together, batch, replica, state, start, tried)
                    batch = _drawn_batch(chance, data, over.size)
        finally:
            for variable, value in saved:
                variable.assign(value)

    def _try(
        self,
        alone: _Traced,
        together: _Traced,
        batch: Any,
        replica: Replica,
        state: _State,
        start: float | None,
        tried: Sequence[keras.Variable],
    ) -> _State:
        """Tries it from a state, in which some variables get another value. The state afterwards is
        that of one process."""

        def begin() -> list[np.ndarray]:
            for variable, value in state:
                variable.assign(value)
            for held in map(tensor_of, tried):
                held.assign(tf.cast(tf.fill(held.shape, start), held.dtype))
            return self._numbers()

        problem, before, whole = "", begin(), []
        gradients: _Gradients = {}
        try:
            gradients = alone.run(batch)
            whole = self._numbers()
        except Exception as error:
            problem = brief(error)
        if not self._all_well(problem):
            return state
        after = [(variable, variable.read_value()) for variable, _ in state]
        begin()
        part, share = cut(batch, replica)
        self._compare(gradients, together.run((part, share)))
        everyone = self._of_all_ranks(self._numbers())
        counts = np.array(agreement.everyones(self._over, int(share.local)), np.float64)
        for i, variable in enumerate(self._variables):
            key, of_ranks = id(variable), everyone[i]
            if not all(np.isfinite(v).all() for v in (before[i], whole[i], of_ranks)):
                continue
            if any((v != before[i]).any() for v in (whole[i], of_ranks)):
                self.changed.add(key)
            scale = max(np.abs(v).max(initial=0) for v in (whole[i], of_ranks))
            rounding = self._rounding * scale
            self.fitting[key] &= fitting_rules(before[i], of_ranks, counts, whole[i], rounding)
        return after

    def _compare(self, of_one: _Gradients, of_ranks: _Gradients) -> None:
        pairs = {path: (np.asarray(g), np.asarray(of_ranks[path])) for path, g in of_one.items()}
        norms = {path: float(np.linalg.norm(whole)) for path, (whole, _) in pairs.items()}
        # A gradient that is zero but for rounding, as of a bias that cancels, says nothing.
        least = 1e-3 * max(norms.values(), default=0.0) + 1e-12
        for path, (whole, summed) in pairs.items():
            if np.isfinite(whole).all() and np.isfinite(summed).all():
                apart = float(np.linalg.norm(whole - summed)) / max(norms[path], least)
                self.apart[path] = min(apart, self.apart.get(path, apart))

    def _is_for(self, variable: keras.Variable, start: float | None) -> bool:
        """Whether the variable is to begin with this value."""
        is_float = tensor_of(variable).dtype.is_floating
        if start is None or id(variable) in self.changed:
            return start == 0 and is_float
        return start == 0 or is_float

    def _all_well(self, problem: str) -> bool:
        problems = [p for p in agreement.everyones(self._over, problem) if p]
        self.failure = problems[0] if problems else self.failure
        return not problems

    def _numbers(self) -> list[np.ndarray]:
        """The values of the variables, of large ones some elements."""
        values = [np.asarray(tensor_of(v)).astype(np.float64).ravel() for v in self._variables]
        return [value[:: 1 + value.size // _ELEMENTS] for value in values]

    def _of_all_ranks(self, own: Sequence[np.ndarray]) -> list[np.ndarray]:
        """With an axis of ranks in front."""
        everyone = self._over.allgather_bytes(np.concatenate([*own, np.empty(0)]).tobytes())
        rows = np.stack([np.frombuffer(row, np.float64) for row in everyone])
        return np.split(rows, np.cumsum([value.size for value in own])[:-1], axis=1)


def fitting_rules(
    before: np.ndarray,
    of_parts: np.ndarray,
    samples: np.ndarray,
    whole: np.ndarray,
    rounding: float,
) -> set[str]:
    """The rules that make of what parts have left what the whole batch leaves.

    Args:
        before: the value before, float64 [elements].
        of_parts: float64 [parts, elements].
        samples: of each part, float64 [parts].
        whole: float64 [elements].
        rounding: how far values may be apart.
    """
    having = of_parts[samples > 0]
    made = {
        "sum": before + (having - before).sum(0),
        "mean": np.average(of_parts, axis=0, weights=samples),
        "max": having.max(0),
        "min": having.min(0),
        "first": of_parts[0],
        "same": of_parts,
    }
    return {rule for rule, value in made.items() if (np.abs(value - whole) <= rounding).all()}


def chosen_of(fitting: set[str]) -> str:
    """The rule that is taken where several fit. If all parts had the same by chance only, the check
    at the end of an epoch says so."""
    return next(rule for rule in _ORDER if rule in fitting)


@dataclass(frozen=True)
class _Traced:
    """A step that gives its gradients, and the variables that it uses."""

    run: Callable[[Any], _Gradients]
    variables: Sequence[tf.Variable]


def _traced(model: keras.Model, step: Callable[[Any], Any], example: Any) -> _Traced:
    def run(batch: Any) -> _Gradients:
        gradients: dict[str, Any] = {}
        with _comparable(gradients):
            step(batch)
        return gradients

    if model.run_eagerly:
        return _Traced(run, [tensor_of(v) for v in model.variables])
    concrete = tf.function(run, autograph=False).get_concrete_function(example)
    return _Traced(concrete, concrete.graph.variables)


@contextlib.contextmanager
def _comparable(gradients: dict[str, Any]) -> Iterator[None]:
    """As :func:`each_sample_alone`, and what a step gives to optimizers is added to
    ``gradients``."""
    graph = tf.compat.v1.get_default_graph()

    def keep(_: Any, optimizer: Any, given: Sequence[Any], variables: Any = None) -> None:
        for gradient, variable in zip(given, variables or trained_by(optimizer), strict=True):
            # Within a condition or a loop, who knows whether it is applied.
            if gradient is not None and getattr(gradient, "graph", graph) is graph:
                before = gradients.get(variable.path, 0.0)
                gradients[variable.path] = before + tf.convert_to_tensor(gradient)

    with contextlib.ExitStack() as stack:
        for kind in classes_with_own_apply():
            stack.enter_context(replaced(kind, "apply", keep))
        stack.enter_context(each_sample_alone())
        yield


def _drawn_batch(chance: np.random.Generator, data: Any, ranks: int) -> Any:
    """Numbers that serve as labels and as probabilities alike; samples differ much."""
    samples = min(_SAMPLES, 2 * ranks + 1)
    high = np.zeros(samples, bool)
    high[chance.permutation(samples)[: 1 + chance.integers(samples // 2)]] = True

    def of_leaf(leaf: Any) -> Any:
        if leaf is None:
            return None
        if not isinstance(leaf, tf.Tensor | tf.TensorSpec) or not leaf.shape.rank:
            raise TypeError(f"its input is a {type(leaf).__name__}, not a tensor of samples")
        return tf.constant(drawn(chance, leaf, high, low_is_zero=True))

    return keras.tree.map_structure(of_leaf, data)
