"""What the calls of one cell, or of one ``tnt.Model``, share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import keras

from tnt_notebook.comm import World
from tnt_notebook.comm.stop import stop_requested
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.functions import DistributedFunctions
from tnt_notebook.parallel.progress import Progress, Report


@dataclass
class Run:
    """One finished call of ``fit``, ``evaluate`` or ``predict``."""

    kind: str
    model: keras.Model
    history: dict[str, list[float]] = field(default_factory=dict)
    stopped: bool = False


@dataclass
class Session:
    """The life of distributed training: its models' functions, and what has run.

    Attributes:
        runs: finished runs, in order.
        alone: whether Keras is to work on this rank alone just now, as inside a callback.
        progress: of the call that is running.
    """

    over: World
    exchange: Exchange
    report: Report | None = None
    quiet: bool = False
    runs: list[Run] = field(default_factory=list)
    alone: bool = False
    progress: Progress | None = None
    functions: dict[int, DistributedFunctions] = field(default_factory=dict)

    @contextlib.contextmanager
    def on_this_rank_alone(self) -> Iterator[None]:
        """Inside, the methods of models do what they do on one process."""
        before, self.alone = self.alone, True
        try:
            yield
        finally:
            self.alone = before

    def functions_of(self, model: keras.Model) -> DistributedFunctions:
        """The distributed functions of a model, in place."""
        functions = self.functions.get(id(model))
        if functions is None:
            functions = DistributedFunctions(
                model, self.over, self.exchange, self._take_news, stop_requested
            )
            self.functions[id(model)] = functions
        functions.install()
        return functions

    def close(self) -> None:
        """Gives all models their own functions back."""
        for functions in self.functions.values():
            functions.remove()
        self.functions.clear()

    def _take_news(self, model: keras.Model, phase: str, votes: float, samples: int) -> None:
        progress = self.progress
        if progress is not None and phase == progress.phase:  # not the validation of a fit
            progress.count(samples)
        if votes > 0:
            model.stop_training = model.stop_evaluating = True
            if progress is not None:
                progress.stopped = True
