"""The train, test and predict functions of a model, replaced by distributed ones and put back."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import World, channels, ops
from tnt_notebook.errors import DifferentDataError, ModelError
from tnt_notebook.keras import training
from tnt_notebook.parallel import data_parallel
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.kept import Kept
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.model_state import optimizers_of
from tnt_notebook.parallel.pipeline.layout import Layout
from tnt_notebook.parallel.pipeline.training import PipelineSteps
from tnt_notebook.parallel.step import NEWS, Setting, Votes
from tnt_notebook.parallel.timed import input_timed
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.telemetry.events import FIRST, PHASES

#: Asked before each step of "fit" or "evaluate": what this rank votes for, 0 or 1 each.
Wants = Callable[[str], Votes]

#: Called after it with the model, what the step was of, the votes of all, and the samples of the
#: batch.
News = Callable[[keras.Model, str, Votes, int], None]

#: Nanoseconds between two votes of ranks that predict.
_VOTE_NS = 200_000_000

#: Whose functions a model has: there are others if it is wrapped again, or trained in a cell.
_in_place: MutableMapping[keras.Model, DistributedFunctions] = weakref.WeakKeyDictionary()


class DistributedFunctions:
    """Makes ``model.train_function`` and its like work on batches of ``(slice, Share)``.

    Args:
        wants, news: called before and after each step.
        pipeline: how the model is cut into stages, and which this rank has.
    """

    def __init__(
        self,
        model: keras.Model,
        over: World,
        exchange: Exchange,
        wants: Wants,
        news: News,
        pipeline: tuple[Pipeline, Layout] | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.model = model
        self._make_room()
        self._over, self._wants, self._news = over, wants, news
        with tf.device("/CPU:0"):
            self._votes = Votes(
                *(
                    tf.Variable(0.0, trainable=False, dtype=tf.float64, name=f"tnt_{name}")
                    for name in Votes._fields
                )
            )
        self._voted = Votes(0, 0, 0, 0)
        self._is_first = False
        self._last_logs: dict[str, float] = {}
        for optimizer in optimizers_of(model):
            if why := exchange.refuses(optimizer):
                raise ModelError(f"The exchange {name_of(exchange)} cannot be used here: {why}.")
        if pipeline is not None and not exchange.keeps_ranks_equal:
            raise ModelError(
                f"The exchange {name_of(exchange)} lets ranks train weights of their own, so it "
                "needs ranks that have the whole model: take it without a pipeline."
            )
        self.setting = setting = Setting(over, exchange, self._votes, Kept(model.variables))
        self.pipeline: PipelineSteps | None = None
        steps: tuple[Callable[[Any], Any], ...]
        if pipeline is not None:
            self.pipeline = cut = PipelineSteps(setting, model, *pipeline, batch_size)
            steps = (cut.train_step, cut.test_step, cut.predict_step)
        else:
            steps = (
                data_parallel.whole_batch_step(setting, model, model.train_step, trains=True),
                data_parallel.whole_batch_step(setting, model, model.test_step, trains=False),
                data_parallel.predict_step(setting, model, model.predict_step),
            )
        train, test, predict = steps
        steps = (input_timed(train, over), input_timed(test, over), predict)
        # The logs of a distributed step are those of the global batch already.
        ours = (*steps, lambda logs: logs or self._last_logs)
        self._ours = dict(zip(training.STEPS, ours, strict=True))
        self._theirs: dict[str, Any] = {}
        self._installed = False
        self._made: dict[str, Any] = {}
        self._compiled: Any = None

    def install(self) -> None:
        """Puts the distributed functions in place, unless they are; traces them when first run."""
        model = self.model
        if self._installed and all(getattr(model, f) is self._made[f] for f in training.FUNCTIONS):
            return
        compiled, self._compiled = self._compiled, training.compiled_as(model)
        if not self._installed and self._made and compiled is self._compiled:
            self._put_back()
            return
        self._make_room()
        _in_place[model] = self
        now = training.functions_of(model)
        if self._installed:  # and compile() has been called since
            self._theirs |= dict.fromkeys(training.FUNCTIONS) | {training.XLA: now[training.XLA]}
        else:
            self._theirs = now
        if self._made and self.pipeline is not None:
            self.pipeline.compiled_again()
        self._installed = True
        # XLA cannot compile ops that talk to other processes.
        training.set_functions(model, {**now, **self._ours, training.XLA: False})
        model.make_train_function(force=True)
        model.make_test_function(force=True)
        model.make_predict_function(force=True)
        model.train_function = self._watched("fit", model.train_function)
        model.test_function = self._watched("evaluate", model.test_function)
        model.predict_function = self._timed(model.predict_function)
        self._made = training.functions_of(model)

    def _make_room(self) -> None:
        others = _in_place.get(self.model, self)
        if others is not self:
            others.remove()

    def remove(self) -> None:
        """Gives the model its own functions back. Those traced are kept for :meth:`install`."""
        if self._installed:
            self._installed = False
            _in_place.pop(self.model, None)
            training.set_functions(self.model, self._theirs)

    @contextlib.contextmanager
    def removed(self) -> Iterator[None]:
        """Inside, the model works as if on one process."""
        was_installed = self._installed
        self.remove()
        try:
            yield
        finally:
            if was_installed:
                self._put_back()

    def _put_back(self) -> None:
        self._make_room()
        self._theirs = training.functions_of(self.model)
        self._installed = True
        _in_place[self.model] = self
        training.set_functions(self.model, self._made)

    def epoch_begins(self) -> None:
        """The next step is the first of an epoch: the trace tells it from the others."""
        self._is_first = True

    def _record_step(self, phase: str, begin_ns: int, end_ns: int) -> None:
        first, self._is_first = self._is_first, False
        self._over.record_step(begin_ns, end_ns, PHASES.index(phase) | (FIRST if first else 0))

    def _watched(self, phase: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(iterator: Any) -> dict[str, Any]:
            own = self._wants(phase)
            self._vote(own)
            if self.pipeline is not None and phase == "fit":
                self.pipeline.weights.part()
            begin = time.monotonic_ns()
            logs = dict(function(iterator))
            news = logs.pop(NEWS).numpy()
            self._record_step(phase, begin, time.monotonic_ns())
            samples, *votes, same = news if news.ndim else (news, *own, True)
            if not same:
                raise DifferentDataError(
                    "The ranks read different batches. The input must be the same on all ranks, "
                    "each takes its slice of it: call keras.utils.set_random_seed(...) before "
                    "shuffling or generating it, and let it not depend on the rank."
                )
            self._news(self.model, phase, Votes(*map(float, votes)), int(samples))
            return logs

        return run

    def _timed(self, predict: Callable[[Any], Any]) -> Callable[[Any], Any]:
        steps = itertools.count(1)
        next_vote = 1

        def run(iterator: Any) -> Any:
            nonlocal next_vote
            begin = time.monotonic_ns()
            outputs = predict(iterator)
            end, step_number = time.monotonic_ns(), next(steps)
            self._record_step("predict", begin, end)
            stop = 0.0
            if step_number >= next_vote:
                # Nothing travels that could carry a vote, so votes travel by themselves, as often
                # as rank 0 finds good.
                apart = _VOTE_NS // (end - begin + 1) if self._over.rank == 0 else 0
                own = np.array([self._wants("predict").stop, apart], np.float64)
                stop, apart = self._over.allreduce(own) if self._over.size > 1 else own
                next_vote = step_number + max(1, int(apart))
            look = step_number > 1 and step_number & (step_number - 1) == 0
            self._news(self.model, "predict", Votes(stop, look, 0, 0), 0)
            return outputs

        return run

    def settle(self) -> None:
        """What the exchange has left to do, at the end of an epoch. Collective."""
        setting, cut = self.setting, self.pipeline
        if setting.exchange.settles and setting.applied:
            exchange = setting.exchange if cut is None else cut.weights.exchange
            step = ExchangeStep(setting.over, tf.constant(1.0, tf.float64), setting.kept)
            with ops.channels(channels.TRAINING):
                exchange.settle(step, list(setting.applied.values()))

    def forget_votes(self) -> None:
        """A run that was stopped is over; the next one begins without votes."""
        self._vote(Votes(0, 0, 0, 0))

    def resume(self, logs: dict[str, float]) -> None:
        """Before a run that begins after the last step of an epoch: the logs of that step."""
        self._last_logs = logs

    def _vote(self, own: Votes) -> None:
        for variable, before, now in zip(self._votes, self._voted, own, strict=True):
            if before != now:
                variable.assign(now)
        self._voted = own
