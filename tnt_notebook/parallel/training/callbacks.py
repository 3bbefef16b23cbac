"""Callbacks run on rank 0, as on one process; what they change is brought to the other ranks.

    rank 0      user's callbacks, progress bar, History      other ranks     History
                        |  stop_training, initial epoch,
                        |  assigned variables, logs, random      ^
                        |  state
                        +------------- broadcast ---------------+

So files are written once, and a decision that depends on the clock or on chance is made once. All
ranks see the metrics of the global batch, and meet after each hook that a callback implements.
Where each rank has a part of the model, rank 0 has the others gather it when a callback first uses
what is not there: a callback that looks at logs costs no weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.callbacks import Callback, CallbackList, History, ProgbarLogger

from tnt_notebook.comm import World
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.keras.step_functions import call_in_turn, initial_epoch, set_initial_epoch
from tnt_notebook.keras.tensorflow import assignments_recorded
from tnt_notebook.parallel.consistency import agreement, seeds
from tnt_notebook.parallel.consistency.holders import broadcast_array
from tnt_notebook.telemetry import activities

_BATCH_HOOKS = tuple(
    f"on_{phase}_batch_{moment}"
    for phase in ("train", "test", "predict")
    for moment in ("begin", "end")
)
_HOOKS = (
    *_BATCH_HOOKS,
    "on_epoch_begin",
    "on_epoch_end",
    *(f"on_{phase}_{m}" for phase in ("train", "test", "predict") for m in ("begin", "end")),
)
_FLAGS = ("stop_training", "stop_evaluating", "stop_predicting")


class SharedCallbacks(CallbackList):
    """The callbacks of one fit, evaluate or predict on this rank.

    Args:
        callbacks: what the user passed; used on rank 0 only.
        state: variables of the model that a callback may change.
        captured: all that the model's steps use, as a weight of a part of the loss.
        gather: called on every rank to make the model whole on rank 0.
        gathered_when_used: inside it, on rank 0, its argument is called before the first use of
            what is not there.
        settle: called on every rank when the steps of an epoch have ended.
        watch: called on every rank after each hook, with its name, number (epoch or batch), logs.
        alone: inside it the model works on this rank alone, as callbacks expect it.
        random: the random state that only callbacks draw from: not what threads draw from that
            read ahead, at their own pace on each rank.
        resume: called with rank 0's callbacks, on every rank, in place of what they do when the
            first epoch begins: it had begun in an earlier process.
    """

    def __init__(
        self,
        over: World,
        model: keras.Model,
        callbacks: Any,
        *,
        state: Callable[[], Sequence[keras.Variable]],
        captured: Callable[[], Sequence[tf.Variable]],
        gather: Callable[[], None],
        gathered_when_used: Callable[[Callable[[], None]], contextlib.AbstractContextManager[None]],
        settle: Callable[[], None],
        watch: Callable[[str, int, dict[str, Any]], None],
        alone: Callable[[], contextlib.AbstractContextManager[None]],
        random: Callable[[], seeds.State],
        resume: Callable[[Sequence[Callback]], None] | None,
        verbose: Any,
        epochs: int,
        steps: int | None,
    ) -> None:
        self._over, self._state, self._watch, self._alone = over, state, watch, alone
        self._captured = captured
        self._gather, self._gathered_when_used = gather, gathered_when_used
        self._resume, self._settle, self._random = resume, settle, random
        here = over.rank == 0
        super().__init__(
            callbacks if here else None, add_history=True, add_progbar=here and verbose != 0,
            model=model, verbose=verbose if here else 0, epochs=epochs, steps=steps,
        )  # fmt: skip
        # Callbacks in another thread could not stop training after the same step on all ranks.
        call_in_turn(self)
        # Hooks of batches that nobody implements cost nothing, and no exchange.
        rare = set(_HOOKS) - set(_BATCH_HOOKS)
        self._called = rare | {hook for hook in _BATCH_HOOKS if self._implements(hook)}
        self._shared: set[str] = set()
        self._look: set[str] = set()
        if over.size > 1:
            harmless = (History, ProgbarLogger)
            effective = [hook for hook in _HOOKS if self._implements(hook, but=harmless)]
            self._look = set(agreement.from_rank_0(over, effective))
            self._shared = rare | self._look

    @property
    def looks_at_batches(self) -> bool:
        """Whether a callback implements a hook of batches, on rank 0."""
        return bool(self._look & set(_BATCH_HOOKS))

    def _implements(self, hook: str, but: tuple[type, ...] = ()) -> bool:
        general = hook.replace("_train", "") if "_train_batch" in hook else hook
        return any(
            getattr(type(callback), name) is not getattr(Callback, name)
            or name in vars(callback)  # LambdaCallback sets them on itself
            for callback in self.callbacks
            if not isinstance(callback, but)
            for name in (hook, general)
        )

    def _run(self, hook: str, call: Callable[[], None], number: int, logs: dict[str, Any]) -> None:
        if hook == "on_epoch_begin" and self._resume is not None:
            resume, self._resume = self._resume, None
            resume(self.callbacks)
            self._watch(hook, number, logs)
            return
        if hook in ("on_test_begin", "on_epoch_end"):
            self._settle()
        shared = hook in self._shared
        if hook not in self._called and not shared:
            self._watch(hook, number, logs)
            return
        touched: set[int] = set()  # of TensorFlow's variables: some callbacks assign those
        before = self._random() if shared and self._over.rank == 0 else None
        lengths = _lengths(self.model)
        train_function = self.model.train_function
        if hook == "on_epoch_end":
            activities.begin("epoch_end" if self._over.rank == 0 else "wait")
        with contextlib.ExitStack() as inside:
            if hook in self._look and self._over.rank == 0:
                inside.enter_context(self._gathered_when_used(self._have_gathered))
            inside.enter_context(assignments_recorded(lambda v: touched.add(id(v))))
            inside.enter_context(self._alone())
            call()
        if self.model.train_function is not train_function:
            raise ModelError(
                "A callback compiled the model anew while it trains on several ranks. Compile it "
                "between two calls of fit instead."
            )
        if shared:
            after = None if before is None else self._random()
            self._share(hook, number, touched, lengths, after if after != before else None)
        if hook == "on_epoch_end":  # with what callbacks have added, as the History has it
            added = _new_row(self.model, lengths).items()
            logs = {**logs, **{name: v for name, v in added if isinstance(v, Real)}}
        self._watch(hook, number, logs)

    def _have_gathered(self) -> None:
        """Has all ranks gather the model: the others wait for what this one's callbacks change."""
        agreement.from_rank_0(self._over, None)
        self._gather()

    def _share(
        self,
        hook: str,
        epoch: int,
        touched: set[int],
        lengths: dict[str, int],
        drawn: seeds.State | None,
    ) -> None:
        """Brings to all ranks what rank 0's callbacks have changed.

        Args:
            drawn: the random state that they have left; None: they have drawn nothing.
        """
        model, variables = self.model, self._state()
        known = {id(tensor_of(variable)) for variable in variables}
        others = [variable for variable in self._captured() if id(variable) not in known]
        changes = {
            "flags": {flag: bool(getattr(model, flag, False)) for flag in _FLAGS},
            "initial_epoch": initial_epoch(model),
            "touched": [i for i, v in enumerate(variables) if id(tensor_of(v)) in touched],
            "others": [i for i, v in enumerate(others) if id(v) in touched],
            "random": drawn,
            "logs": _new_row(model, lengths) if hook == "on_epoch_end" else None,
        }
        while (agreed := agreement.from_rank_0(self._over, changes)) is None:
            self._gather()  # a callback on rank 0 waits for it
        changes = agreed
        for flag, value in changes["flags"].items():
            if getattr(model, flag, False) != value:
                setattr(model, flag, value)
        set_initial_epoch(model, changes["initial_epoch"])
        for i in changes["touched"]:
            agreement.broadcast(self._over, variables[i])
        for i in changes["others"]:
            others[i].assign(broadcast_array(self._over, np.asarray(others[i])))
        if changes["random"] is not None and self._over.rank != 0:
            seeds.set_state(changes["random"])
        if self._over.rank != 0 and changes["logs"] is not None:
            model.history.on_epoch_end(epoch, changes["logs"])


def _hook(name: str) -> Callable[..., None]:
    base = getattr(CallbackList, name)

    def run(self: SharedCallbacks, *arguments: Any, **keywords: Any) -> None:
        numbered = [a for a in arguments if isinstance(a, (int, np.integer))]
        logs = keywords.get("logs") or next((a for a in arguments if isinstance(a, dict)), {})

        def call() -> None:
            # The history of other ranks is written with rank 0's logs: callbacks add to them.
            if name == "on_epoch_end" and self._over.rank != 0:
                return
            base(self, *arguments, **keywords)

        self._run(name, call, int(numbered[0]) if numbered else 0, logs)

    run.__name__ = name
    return run


for _name in _HOOKS:
    setattr(SharedCallbacks, _name, _hook(_name))


def _lengths(model: keras.Model) -> dict[str, int]:
    history = getattr(model, "history", None)
    return {} if history is None else {k: len(v) for k, v in history.history.items()}


def _new_row(model: keras.Model, before: dict[str, int]) -> dict[str, float]:
    """What the epoch has appended to the history: callbacks add to Keras's logs."""
    history = model.history.history
    return {name: v[-1] for name, v in history.items() if len(v) > before.get(name, 0)}
