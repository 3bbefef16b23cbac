"""The train, test and predict functions of a model, replaced by distributed ones and put back."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import World, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras import training
from tnt_notebook.keras.absent import brought_when_used, is_lazy
from tnt_notebook.keras.optimizers import trained_by
from tnt_notebook.parallel import agreement, data_parallel
from tnt_notebook.parallel.data import unzipped
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.kept import Kept
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.holders import Holding, slot_of
from tnt_notebook.parallel.late_logs import LateLogs
from tnt_notebook.parallel.layers.by_variable import Wanted
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.training import MeshSteps
from tnt_notebook.parallel.layers.weights import MeshWeights
from tnt_notebook.parallel.logs import check_same_data
from tnt_notebook.parallel.meetings import Meetings
from tnt_notebook.parallel.model_state import optimizers_of, state_of
from tnt_notebook.parallel.parted import finalized_here
from tnt_notebook.parallel.pipeline.training import PipelineSteps
from tnt_notebook.parallel.pipeline.weights import Weights
from tnt_notebook.parallel.pool import Pool
from tnt_notebook.parallel.step import NEWS, Setting, Votes
from tnt_notebook.parallel.timed import input_timed
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.sizes import size
from tnt_notebook.telemetry.events import FIRST, PHASES

#: Asked before each step of "fit" or "evaluate": what this rank votes for, 0 or 1 each.
Wants = Callable[[str], Votes]

#: Called after it with the model, what the step was of, the votes of all, and the samples of the
#: batch.
News = Callable[[keras.Model, str, Votes, int], None]

#: Where a model keeps those that it has in place, and all that were made for it: there are others
#: if it is wrapped again, or trained in a cell. They live as long as it does.
_IN_PLACE, _MADE = "tnt_functions_in_place", "tnt_functions_made"


def _noted(
    step: Callable[[Any], Any], exchanges: dict[int, ops.Exchange], in_parts: bool
) -> Callable[[Any], Any]:
    """A step that says what it exchanges, when it is traced."""

    def run(batch: Any) -> Any:
        if in_parts and type(batch) is tuple:
            batch = (unzipped(batch[0]), *batch[1:])
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
        pipeline: how the model is cut into stages.
        ranks: the mesh along whose axes stages lie and layers are divided; None: there is none.
        layouts: of layers, as far as they are asked for.
        memory: bytes that a rank of a mesh without stages may need.
        batch_norm: whose samples statistics of batch norm are of: ``"rank"`` or ``"whole"``.
    """

    def __init__(
        self,
        model: keras.Model,
        over: World,
        exchange: Exchange,
        wants: Wants,
        news: News,
        due_in: Callable[[], float],
        pipeline: Pipeline | None = None,
        batch_size: int | None = None,
        ranks: MeshRanks | None = None,
        layouts: Wanted | None = None,
        memory: float = math.inf,
        batch_norm: str = "rank",
    ) -> None:
        self.model = model
        vars(model).setdefault(_MADE, []).append(self)
        self._make_room()
        self._over, self._wants, self._news, self._due_in = over, wants, news, due_in
        with tf.device("/CPU:0"):
            self._votes = tf.Variable(
                tf.zeros(len(Votes._fields), tf.float64), trainable=False, name="tnt_votes"
            )
        self._voted = Votes(0, 0, 0, 0)
        self._is_first = False
        self._last_logs: dict[str, float] = {}
        in_parts = "a pipeline" if pipeline is not None else "a mesh" if ranks is not None else ""
        whole = over.size > 1 and not in_parts
        apart = whole and not exchange.keeps_ranks_equal
        self._states = Pool(over) if apart else None
        is_late = whole and (apart or exchange.late_logs)
        self._late = LateLogs(over, model, exchange.ahead, not apart) if is_late else None
        for optimizer in optimizers_of(model):
            if why := exchange.refuses(optimizer):
                raise ModelError(f"The exchange {name_of(exchange)} cannot be used here: {why}.")
        if in_parts and not exchange.keeps_ranks_equal:
            raise ModelError(
                f"The exchange {name_of(exchange)} lets ranks train weights of their own, so it "
                f"needs ranks that have the whole model: take it without {in_parts}."
            )
        if batch_norm == "whole" and (pipeline is not None or apart):
            where = "a pipeline" if pipeline is not None else f"the exchange {name_of(exchange)}"
            raise ModelError(
                f"batch_norm='whole' is not possible with {where}: its ranks do not run a step "
                "together. Leave it out, or make layers with synchronized=True where that is known."
            )
        self.setting = setting = Setting(
            over, exchange, self._votes, Kept(model.variables), batch_norm=batch_norm
        )
        if in_parts and exchange.has_owners:
            raise ModelError(
                f"The exchange {name_of(exchange)} needs ranks that have the whole model: take it "
                f"without {in_parts}, in which each rank has a part of what optimizers keep anyway."
            )
        self._own_holding = self._hold() if exchange.has_owners and over.size > 1 else None
        self.pipeline: PipelineSteps | None = None
        self.mesh: MeshSteps | None = None
        steps: tuple[Callable[[Any], Any], ...]
        if pipeline is not None and ranks is not None:
            self.pipeline = cut = PipelineSteps(
                setting, model, pipeline, ranks, layouts, batch_size
            )
            steps = (cut.train_step, cut.test_step, cut.predict_step)
        elif ranks is not None:
            self.mesh = divided = MeshSteps(setting, model, ranks, layouts, batch_size, memory)
            steps = (
                functools.partial(divided.train_step, model.train_step),
                functools.partial(divided.test_step, model.test_step),
                functools.partial(divided.predict_step, model.predict_step),
            )
        else:
            steps = (
                data_parallel.train_step(
                    setting, model, model.train_step, self._late, self._states
                ),
                data_parallel.test_step(setting, model, model.test_step),
                data_parallel.predict_step(setting, model, model.predict_step),
            )
        #: Whether layers run on blocks, also where the model is not trained.
        self._is_divided = ranks is not None and ranks.mesh.is_divided
        #: By channel, what its steps exchange.
        self.exchanges: dict[int, ops.Exchange] = {}
        train, test, predict = (_noted(step, self.exchanges, bool(in_parts)) for step in steps)
        steps = (input_timed(train, over), input_timed(test, over), predict)
        ours = (*steps, self._logs_of_epoch)
        self._ours = dict(zip(training.STEPS, ours, strict=True))
        self._theirs: dict[str, Any] = {}
        self._installed = False
        self._made: dict[str, Any] = {}
        self._traced: dict[str, Any] = {}  # by phase
        self._compiled: Any = None

    def _logs_of_epoch(self, logs: Any) -> Any:
        """Of the logs of the last step of an epoch, or of an evaluation, those of all of it."""
        if caught_up := self.caught_up():
            return caught_up
        if self.pipeline is not None or not logs:
            return logs or self._last_logs
        return training.logs_of_epoch(self.model, logs)

    @property
    def holding(self) -> Holding | Weights | MeshWeights | None:
        """Which ranks have what while the model trains; None: all have all."""
        parts = self.pipeline or self.mesh
        return self._own_holding if parts is None else parts.weights

    def check_identical(self, when: str) -> None:
        """Raises where ranks have different values of what they share. Collective."""
        parts = self.pipeline or self.mesh
        if parts is not None:
            parts.weights.blocks.check_identical(state_of(self.model), when)
        else:
            agreement.check_identical(self._over, state_of(self.model), when)

    @contextlib.contextmanager
    def gathered_when_used(self, gather: Callable[[], None]) -> Iterator[None]:
        """Inside, ``gather`` is called before the first use of what is not here, or not whole. For
        one rank, where others answer."""
        parts = self.pipeline or self.mesh
        with contextlib.ExitStack() as inside:
            if parts is not None:
                inside.enter_context(parts.weights.blocks.shown_whole())
            if self.holding is not None:
                inside.enter_context(brought_when_used(state_of(self.model), gather))
            yield

    def join_blocks(self) -> None:
        """Makes whole what ranks have blocks of; of a model without stages that stays in blocks, on
        rank 0. Collective."""
        if self.pipeline is not None:
            self.pipeline.weights.blocks.join()
        elif self.mesh is not None:
            self.mesh.weights.gather([0])

    def set_blocks_aside(self) -> Callable[[keras.Variable, np.ndarray], None] | None:
        """Where a model stays in blocks that are not joined: what gives a variable that is absent
        then its value. Collective."""
        if self.mesh is None or not self.mesh.weights.stay_apart:
            return None
        self.mesh.weights.gather()
        return self.mesh.weights.blocks.put

    def _hold(self) -> Holding:
        """Gives variables owners, who alone keep what optimizers do of them. Collective."""
        over, model, owners = self._over, self.model, self.setting.owners
        optimizers = optimizers_of(model)
        owners.clear()
        trained = [trained_by(one) for one in optimizers]
        owners.update(self.setting.exchange.owners(trained, over.size))
        everybody = [*range(over.size)]

        def holders() -> list[tuple[keras.Variable, list[int]]]:
            result = []
            for optimizer, variables in zip(optimizers, trained, strict=True):
                for variable in optimizer.variables:
                    about = slot_of(variable, variables)
                    owner = None if about is None else owners.get(id(about))
                    result.append((variable, everybody if owner is None else [owner]))
            return result

        return Holding(over, holders, any(map(is_lazy, model.variables)))

    def finalized(self) -> contextlib.AbstractContextManager[None]:
        """Around ``fit``, which at its end puts moving averages into weights."""
        if self.holding is None:
            return contextlib.nullcontext()
        return finalized_here(self._bring_averages)

    def _bring_averages(self, optimizer: keras.optimizers.Optimizer) -> None:
        owners = self.setting.owners
        for variable in trained_by(optimizer) if optimizer.use_ema else []:
            if id(variable) in owners:
                agreement.broadcast(self._over, variable, owners[id(variable)])

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
        vars(model)[_IN_PLACE] = self
        now = training.functions_of(model)
        if self._installed:  # and compile() has been called since
            self._theirs |= dict.fromkeys(training.FUNCTIONS) | {training.XLA: now[training.XLA]}
        else:
            self._theirs = now
        # What is applied at an epoch's end is of the optimizer that there is now.
        self.setting.applied.clear()
        if self._made and self.pipeline is not None:
            self.pipeline.compiled_again()
        if self._made and self.mesh is not None:
            self.mesh.compiled_again()
        if self._made and self._own_holding is not None:
            self._own_holding.gather()
            self._own_holding = self._hold()
        if self._late is not None:
            self._late.forget()
        if self._states is not None:
            self._states.forget()
        self._installed = True
        # XLA cannot compile ops that talk to other processes.
        training.set_functions(model, {**now, **self._ours, training.XLA: False})
        model.make_train_function(force=True)
        model.make_test_function(force=True)
        model.make_predict_function(force=True)
        train = training.directly(model, model.train_step, model.train_function)
        self._traced = {"fit": train}
        if self._late is None:
            model.train_function = self._watched("fit", train)
        else:
            model.train_function = self._watched_late(self._late, train)
        test = training.directly(model, model.test_step, model.test_function)
        self._traced["evaluate"] = test
        model.test_function = self._watched("evaluate", test)
        model.predict_function = self._timed(model.predict_function)
        self._made = training.functions_of(model)

    def _make_room(self) -> None:
        others = vars(self.model).get(_IN_PLACE, self)
        if others is not self:
            others.remove()

    def remove(self) -> None:
        """Gives the model its own functions back. Those traced are kept for :meth:`install`."""
        if self._installed:
            self._installed = False
            vars(self.model).pop(_IN_PLACE, None)
            training.set_functions(self.model, self._theirs)

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
        self._theirs = training.functions_of(self.model)
        self._installed = True
        vars(self.model)[_IN_PLACE] = self
        training.set_functions(self.model, self._made)

    def epoch_begins(self) -> None:
        """The next step is the first of an epoch: the trace tells it from the others."""
        self._is_first = True
        if self._late is not None:
            self._late.begin()
        if self._states is not None:
            self._states.begin()

    def _record_step(self, phase: str, begin_ns: int, end_ns: int) -> None:
        first, self._is_first = self._is_first, False
        self._over.record_step(begin_ns, end_ns, PHASES.index(phase) | (FIRST if first else 0))

    def captured(self) -> list[tf.Variable]:
        """The variables that its steps use, in the same order on all ranks, as far as they have
        been traced; none of a pipeline, whose ranks trace other layers each."""
        if self.pipeline is not None:
            return []
        of_both = (*training.variables_of(self._traced.get("fit")),
                   *training.variables_of(self._traced.get("evaluate")))  # fmt: skip
        return list({id(variable): variable for variable in of_both}.values())

    def _watched(self, phase: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(iterator: Any) -> dict[str, Any]:
            own = self._wants(phase)
            self._vote(own)
            if self.holding is not None and (phase == "fit" or self._is_divided):
                self.holding.part()
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
            if self.holding is not None:
                self.holding.part()
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
        late = self._late
        return late.caught_up() if late is not None and late.is_behind else {}

    def in_every_step(self, always: bool) -> None:
        """Whether ranks are to exchange logs in every step, also where these may be late."""
        if self._late is not None:
            self._late.in_every_step = always

    def _timed(self, predict: Callable[[Any], Any]) -> Callable[[Any], Any]:
        steps = itertools.count(1)
        meetings = Meetings(self._over)

        def run(iterator: Any) -> Any:
            if self.holding is not None and self._is_divided:
                self.holding.part()
            begin = time.monotonic_ns()
            outputs = predict(iterator)
            end, step_number = time.monotonic_ns(), next(steps)
            self._record_step("predict", begin, end)
            stop = 0.0
            if meetings.is_due():
                # Nothing travels that could carry a vote, so votes travel by themselves.
                apart = meetings.wanted(end - begin)
                own = np.array([self._wants("predict").stop, apart], np.float64)
                stop, apart = self._over.allreduce(own) if self._over.size > 1 else own
                meetings.agreed(int(apart))
            look = step_number > 1 and step_number & (step_number - 1) == 0
            self._news(self.model, "predict", Votes(stop, look, 0, 0), 0)
            return outputs

        return run

    def settle(self) -> None:
        """What the exchange has left to do, at the end of an epoch. Collective."""
        setting = self.setting
        if self._states is not None and self._states.has_steps:
            with ops.channels(channels.TRAINING):
                self._states.take()
        if setting.exchange.settles and setting.applied:
            parts = self.pipeline or self.mesh
            exchange = setting.exchange if parts is None else parts.weights.exchange
            with ops.channels(channels.TRAINING):
                exchange.settle(self._no_step(), list(setting.applied.values()))

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
        if self.mesh is not None and (brought := self.mesh.weights.blocks.brought):
            first = next(iter(brought))
            others = f" and {len(brought) - 1} more" if len(brought) > 1 else ""
            said.append(f"{first}{others} are made whole ({size(sum(brought.values()))} a step)")
        return "; ".join(filter(None, said))

    def _no_step(self) -> ExchangeStep:
        """What an exchange is told outside of steps."""
        return ExchangeStep(self._over, tf.constant(1.0, tf.float64), self.setting.kept)

    def forget_votes(self) -> None:
        """A run that was stopped is over; the next one begins without votes."""
        self._vote(Votes(0, 0, 0, 0))

    def resume(self, logs: dict[str, float]) -> None:
        """Before a run that begins after the last step of an epoch: the logs of that step."""
        self._last_logs = logs

    def _vote(self, own: Votes) -> None:
        if own != self._voted:
            self._votes.assign(own)
            self._voted = own
