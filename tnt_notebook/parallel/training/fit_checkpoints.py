"""The checkpoints of one call of fit: when they are taken, and how it goes on from one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import stop
from tnt_notebook.errors import CheckpointError, SuspendedError
from tnt_notebook.keras.step_functions import in_python
from tnt_notebook.parallel.checkpoint.position import Journal, Position
from tnt_notebook.parallel.checkpoint.run import RunCheckpoints
from tnt_notebook.parallel.checkpoint.snapshot import Place, restore, take
from tnt_notebook.parallel.checkpoint.writer import owners
from tnt_notebook.parallel.consistency import seeds
from tnt_notebook.parallel.consistency.model_state import state_of
from tnt_notebook.parallel.data import Sharded
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.exchange.state import ExchangeState
from tnt_notebook.parallel.training.compiled_functions import DistributedFunctions
from tnt_notebook.telemetry import activities


class FitCheckpoints:
    """Made on all ranks at once, of functions that are in place.

    Attributes:
        start: where it goes on; its end, if it had ended; ``None`` if it is new.
        callbacks: those whose state belongs to a checkpoint.

    Raises:
        CheckpointError: on all ranks; it cannot go on.
    """

    def __init__(
        self,
        run: RunCheckpoints,
        functions: DistributedFunctions,
        train: Sharded,
        validation: Sharded | None,
        epochs: int,
    ) -> None:
        if not functions.weights.is_whole and run.options.in_memory:
            raise CheckpointError(
                "In a pipeline, on a mesh and with the exchange sharded no rank has all that is "
                "trained, so snapshots in memory would be useless. Keep checkpoints in a folder."
            )
        self._run, self._functions, self._model = run, functions, functions.model
        self.callbacks: Sequence[keras.callbacks.Callback] = ()
        self._epoch = self._step = 0
        self._due = self._leaves = False
        self.start = run.begin_fit()
        goes_on = self.start is not None and not self.start.place.ended
        if self.start is not None and goes_on and self.start.place.epoch >= epochs:
            raise CheckpointError(
                f"The checkpoint is of {self.start.place}, and this fit has {epochs} epochs. "
                "Rerun the original cell, or name another folder for this one."
            )
        position = Position.of_json(self.start.state.position) if self.start else None
        self.journal = Journal(train, validation, position if goes_on else None)

    # A fit that goes on ---------------------------------------------------------------------------

    def past(self) -> tuple[keras.callbacks.History, bool] | None:
        """Of a fit that had ended its History, and whether it was stopped; the model is as it was
        at its end. ``None`` if there is something to train."""
        start = self.start
        if start is None or not start.place.ended:
            return None
        aside = self._functions.weights.set_blocks_aside()
        restore(start, self._run.over, self._model, absent=aside)
        self.journal.replay(Position.of_json(start.state.position), lambda taken: None)
        seeds.set_state(start.state.random)
        self._say(f"Fit {start.place.fit} had ended; the model is as it was then.")
        return self._model.history, start.state.stopped

    def resume(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Called in place of what callbacks do when the epoch begins: they have done it."""
        start = self.start
        assert start is not None
        left_out = restore(
            start, self._run.over, self._model, callbacks, self._exchange(),
            self._functions.weights.set_blocks_aside(),
        )  # fmt: skip
        self._epoch, self._step = start.place.epoch, start.place.step
        self._functions.resume(start.state.logs)
        self._say(f"Training continues after {start.place}.")
        if left_out:
            self._say(
                f"Not in the checkpoint, so it starts over, of callbacks: {', '.join(left_out)}."
            )

    # While it trains ------------------------------------------------------------------------------

    def wants(self) -> tuple[bool, bool]:
        """Before a step: whether this rank thinks that it is time for a checkpoint, and to leave
        training with one."""
        leave = stop.leave.is_set()
        keep = leave or stop.checkpoint.is_set()
        return keep or self._run.is_due(), leave

    def due_in(self) -> float:
        """In how many steps it will be time for one, by their number."""
        return self._run.due_in()

    def decided(self, keep: bool, leave: bool) -> None:
        """After a step: whether any rank wants it."""
        self._due, self._leaves = keep, leave

    def watch(self, hook: str, number: int, logs: dict[str, Any]) -> None:
        """Called after every hook of callbacks, on all ranks. Raises SuspendedError on all of them
        where training is to be left."""
        if hook == "on_epoch_begin":
            if number != self._epoch:
                self._epoch, self._step = number, 0
        elif hook == "on_train_batch_end":
            self._run.steps += number + 1 - self._step
            self._step = number + 1
            self.journal.stepped(self._step)
            if self._due:
                self._due = False
                self._take(logs)
                if self._leaves:
                    self._leave()

    def end(self, stopped: bool) -> None:
        """Keeps the state at the end of the fit. Collective."""
        self.callbacks = ()
        place = Place(self._run.fits, True, self._epoch + 1, 0, self._run.steps)
        self._keep(place, self.journal.at_the_end(), {}, stopped)
        self._run.wait()

    def _take(self, logs: dict[str, Any]) -> None:
        stop.checkpoint.clear()
        place = Place(self._run.fits, False, self._epoch, self._step, self._run.steps)
        self._keep(place, self.journal.position(), logs, False)

    def _keep(self, place: Place, position: Position, logs: dict[str, Any], stopped: bool) -> None:
        run = self._run
        # One rank writes what all have.
        logs = in_python(self._functions.caught_up()) or logs
        if not self._functions.setting.exchange.keeps_ranks_equal:
            self._functions.settle()
        self._functions.weights.join_blocks()
        writers = self._owners() if run.options.folder is not None else []
        in_memory = run.options.in_memory
        wanted = None if in_memory else [rank == run.over.rank for rank in writers]
        with activities.during("checkpoint"):
            snapshot = take(
                run.over, self._model, place, self.callbacks, position, logs, stopped, wanted,
                in_memory, self._exchange(),
            )  # fmt: skip
            run.keep(snapshot, writers)
        self._functions.weights.set_blocks_aside()

    def _exchange(self) -> tuple[str, ExchangeState]:
        setting = self._functions.setting
        return name_of(setting.exchange), setting.state

    def _owners(self) -> list[int]:
        """The rank that writes each variable."""
        variables, size = state_of(self._model), self._run.over.size
        holders = {id(v): ranks for v, ranks in self._functions.weights.holders()}
        return owners(
            [math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables],
            [holders.get(id(v), range(size)) for v in variables],
            size,
        )

    def _leave(self) -> None:
        self._run.wait()
        raise SuspendedError(
            f"Training was left after epoch {self._epoch + 1}, step {self._step} of fit "
            f"{self._run.fits}, as was asked for. To continue, run the same again with the "
            "same folder of checkpoints."
        )

    def _say(self, what: str) -> None:
        if self._run.over.rank == 0:
            print(what)
