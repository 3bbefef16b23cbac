"""The train, test and predict functions of a model, replaced by distributed ones and put back."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.keras import step_functions as of_keras
from tnt_notebook.parallel.exchange import ExchangeStep
from tnt_notebook.parallel.exchange.timed import input_timed
from tnt_notebook.parallel.step.late_logs import LateLogs
from tnt_notebook.parallel.step.logs import check_same_data
from tnt_notebook.parallel.step.step import NEWS, Setting, Votes
from tnt_notebook.parallel.step.sync_interval import SyncInterval
from tnt_notebook.parallel.step.weights import Weights
from tnt_notebook.parallel.training.placement import Placement
from tnt_notebook.sizes import size
from tnt_notebook.telemetry.events import FIRST, PHASES
from tnt_notebook.telemetry.exchanges import Exchange

#: Asked before each step of "fit" or "evaluate": what this rank votes for, 0 or 1 each.
Wants = Callable[[str], Votes]

#: Called after it with the model, what the step was of, the votes of all, and the samples of the
#: batch.
News = Callable[[keras.Model, str, Votes, int], None]

#: Where a model keeps those that it has in place, and all that were made for it: there are others
#: if it is wrapped again, or trained in a cell. They live as long as it does.
_IN_PLACE, _MADE = "tnt_functions_in_place", "tnt_functions_made"


def _noted(step: Callable[[Any], Any], exchanges: dict[int, Exchange]) -> Callable[[Any], Any]:
    """A step that says what it exchanges, when it is traced."""

    def run(batch: Any) -> Any:
        with ops.noted(exchanges), _nothing_collected():
            return step(batch)

    return run


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Inside, Python does not look for what nobody uses: what is traced is all kept, and to look
    through it again and again takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class DistributedFunctions:
    """Makes ``model.train_function`` and its like work on batches of ``(slice, Share)``.

    Args:
        wants, news: called before and after each step.
        due_in: in how many steps at most this rank is to be asked again what it wants.
        place: places the model, when it has its own functions.

    Attributes:
        placement: where the model is, and how its steps run; another one when it has been compiled
            again.
        compiled: what compile() had been given when they were put in place.
        exchanges: by channel, what its steps exchange.
    """

    def __init__(
        self,
        model: keras.Model,
        wants: Wants,
        news: News,
        due_in: Callable[[], float],
        place: Callable[[], Placement],
    ) -> None:
        self.model = model
        vars(model).setdefault(_MADE, []).append(self)
        self._make_room()
        self._wants, self._news, self._due_in = wants, news, due_in
        self._voted = Votes(0, 0, 0, 0)
        self._is_first = False
        self._last_logs: dict[str, float] = {}
        self._own_steps = model.train_step, model.test_step, model.predict_step
        self.placement = place()
        self._over = self.placement.setting.over
        self.exchanges: dict[int, Exchange] = {}
        self._original: dict[str, Any] = {}
        self._installed = False
        self._ours: dict[str, Any] = {}
        self._traced: dict[str, Any] = {}  # by phase
        self.compiled: Any = None

    def _steps(self) -> dict[str, Any]:
        """What the model's own functions are made of, in their place."""
        there = self.placement
        steps = there.train_step, there.test_step, there.predict_step
        train, test, predict = (
            _noted(functools.partial(step, own), self.exchanges)
            for step, own in zip(steps, self._own_steps, strict=True)
        )
        ours = input_timed(train, self._over), input_timed(test, self._over), predict
        return dict(zip(of_keras.STEPS, (*ours, self._logs_of_epoch), strict=True))

    def _logs_of_epoch(self, logs: Any) -> Any:
        """Of the logs of the last step of an epoch, or of an evaluation, those of all of it."""
        if caught_up := self.caught_up():
            return caught_up
        return of_keras.logs_of_epoch(self.model, logs) if logs else self._last_logs

    @property
    def weights(self) -> Weights:
        """What this rank has of them while the model trains."""
        return self.placement.weights

    @property
    def setting(self) -> Setting:
        return self.placement.setting

    def install(self) -> None:
        """Puts the distributed functions in place, unless they are; traces them when first run."""
        model = self.model
        if self._installed and all(getattr(model, f) is self._ours[f] for f in of_keras.FUNCTIONS):
            return
        compiled, self.compiled = self.compiled, of_keras.compiled_as(model)
        if not self._installed and self._ours and compiled is self.compiled:
            self._put_back()
            return
        self._make_room()
        vars(model)[_IN_PLACE] = self
        now = of_keras.functions_of(model)
        if self._installed:  # and compile() has been called since
            self._original |= dict.fromkeys(of_keras.FUNCTIONS) | {of_keras.XLA: now[of_keras.XLA]}
        else:
            self._original = now
        if self._ours:
            self.placement = self.placement.compiled_again()
        self._installed = True
        # XLA cannot compile ops that talk to other processes.
        of_keras.set_functions(model, {**now, **self._steps(), of_keras.XLA: False})
        model.make_train_function(force=True)
        model.make_test_function(force=True)
        model.make_predict_function(force=True)
        train = of_keras.directly(model, model.train_step, model.train_function)
        late = self.placement.late
        watched = self._watched("fit", train) if late is None else self._watched_late(late, train)
        model.train_function = watched
        test = of_keras.directly(model, model.test_step, model.test_function)
        self._traced = {"fit": train, "evaluate": test}
        model.test_function = self._watched("evaluate", test)
        model.predict_function = self._timed(model.predict_function)
        self._ours = of_keras.functions_of(model)

    def _make_room(self) -> None:
        others = vars(self.model).get(_IN_PLACE, self)
        if others is not self:
            others.remove()

    def remove(self) -> None:
        """Gives the model its own functions back. Those traced are kept for :meth:`install`."""
        if self._installed:
            self._installed = False
            vars(self.model).pop(_IN_PLACE, None)
            of_keras.set_functions(self.model, self._original)

    def forget(self) -> None:
        """Gives the model its own functions back, for good."""
        self.remove()
        made = vars(self.model).get(_MADE, [])
        made[:] = [functions for functions in made if functions is not self]

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
        self._original = of_keras.functions_of(self.model)
        self._installed = True
        vars(self.model)[_IN_PLACE] = self
        of_keras.set_functions(self.model, self._ours)

    def epoch_begins(self) -> None:
        """The next step is the first of an epoch: the trace tells it from the others."""
        self._is_first = True
        self.placement.epoch_begins()

    def _record_step(self, phase: str, begin_ns: int, end_ns: int) -> None:
        first, self._is_first = self._is_first, False
        self._over.record_step(begin_ns, end_ns, PHASES.index(phase) | (FIRST if first else 0))

    def captured(self) -> list[tf.Variable]:
        """The variables that its steps use, in the same order on all ranks, as far as they have
        been traced; none of a pipeline, whose ranks trace other layers each."""
        if self.placement.stages is not None:
            return []
        of_both = (*of_keras.variables_of(self._traced.get("fit")),
                   *of_keras.variables_of(self._traced.get("evaluate")))  # fmt: skip
        return list({id(variable): variable for variable in of_both}.values())

    def _part(self, phase: str) -> None:
        """Leaves to this rank what it needs in a step."""
        if phase == "fit" or self.weights.in_blocks:
            self.weights.part()

    def _watched(self, phase: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(iterator: Any) -> dict[str, Any]:
            own = self._wants(phase)
            self._vote(own)
            self._part(phase)
            begin = time.monotonic_ns()
            logs = dict(function(iterator))
            news = logs.pop(NEWS).numpy()
            self._record_step(phase, begin, time.monotonic_ns())
            samples, *votes, same = news if news.ndim else (news, *own, True)
            check_same_data(same)
            self._news(self.model, phase, Votes(*map(float, votes)), int(samples))
            return logs

        return run

    def _watched_late(
        self, late: LateLogs, function: Callable[[Any], Any]
    ) -> Callable[[Any], dict[str, Any]]:
        def run(iterator: Any) -> dict[str, Any]:
            self._part("fit")
            late.step_begins()
            begin = time.monotonic_ns()
            samples = late.take(function(iterator))
            end = time.monotonic_ns()
            self._record_step("fit", begin, end)
            votes = late.step_ended(
                end - begin,
                lambda: self._wants("fit"),
                lambda: self._due_in() // self.model.steps_per_execution,
            )
            self._news(self.model, "fit", votes, samples)
            return late.logs

        return run

    def caught_up(self) -> dict[str, Any]:
        """Where logs are late: gives the metrics of all ranks the same state, and the logs that
        follow. Empty where they are not. Collective."""
        late = self.placement.late
        return late.caught_up() if late is not None and late.is_behind else {}

    def in_every_step(self, always: bool) -> None:
        """Whether ranks are to exchange logs in every step, also where these may be late."""
        if self.placement.late is not None:
            self.placement.late.in_every_step = always

    def _timed(self, predict: Callable[[Any], Any]) -> Callable[[Any], Any]:
        steps = itertools.count(1)
        interval = SyncInterval(self._over)

        def run(iterator: Any) -> Any:
            self._part("predict")
            begin = time.monotonic_ns()
            outputs = predict(iterator)
            end, step_number = time.monotonic_ns(), next(steps)
            self._record_step("predict", begin, end)
            stop = 0.0
            if interval.is_due():
                # Nothing travels that could carry a vote, so votes travel by themselves.
                apart = interval.wanted(end - begin)
                own = np.array([self._wants("predict").stop, apart], np.float64)
                stop, apart = self._over.allreduce(own) if self._over.size > 1 else own
                interval.agreed(int(apart))
            is_sampled = step_number > 1 and step_number & (step_number - 1) == 0
            self._news(self.model, "predict", Votes(stop, is_sampled, 0, 0), 0)
            return outputs

        return run

    def settle(self) -> None:
        """What the exchange has left to do, at the end of an epoch. Collective."""
        setting = self.setting
        with ops.channels(channels.TRAINING):
            self.placement.settle()
            if setting.exchange.settles and setting.applied:
                applied = list(setting.applied.values())
                self.weights.exchange.settle(self._no_step(), applied)

    def seen(self) -> str:
        """What was found out of training on this rank, in words for the view."""
        told = self.setting.told
        said = [self.setting.exchange.seen(self._no_step())]
        if self.setting.batch_norm == "whole":
            said.append("batch norm of the whole batch")
        if told:
            most = max(told, key=told.__getitem__)
            others = f" and {len(told) - 1} more" if len(told) > 1 else ""
            said.append(f"samples are gathered for {most}{others}, {sum(told.values())} B each")
        if brought := self.weights.blocks.brought:
            first = next(iter(brought))
            others = f" and {len(brought) - 1} more" if len(brought) > 1 else ""
            said.append(f"{first}{others} are made whole ({size(sum(brought.values()))} a step)")
        return "; ".join(filter(None, said))

    def _no_step(self) -> ExchangeStep:
        """What an exchange is told outside of steps."""
        over = self.weights.replicas
        return ExchangeStep(over, tf.constant(1.0, tf.float64), self.setting.state)

    def forget_votes(self) -> None:
        """A run that was stopped is over; the next one begins without votes."""
        self._vote(Votes(0, 0, 0, 0))

    def resume(self, logs: dict[str, float]) -> None:
        """Before a run that begins after the last step of an epoch: the logs of that step."""
        self._last_logs = logs

    def _vote(self, own: Votes) -> None:
        if own != self._voted:
            self.setting.votes.assign(own)
            self._voted = own
