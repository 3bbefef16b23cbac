"""Drives a real `LiveView` with a real `Recorder`, as a training run on ranks would.

Imported by the notebooks of the browser tests: a run goes on until the notebook ends it, so a test
never has to be fast enough.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections.abc import Callable
from typing import ClassVar

from IPython import get_ipython
from ipywidgets import Widget

from tnt_notebook.dashboard import LiveView
from tnt_notebook.telemetry import Breakdown, Recorder, State
from tnt_notebook.telemetry.activities import Activities, Log
from tnt_notebook.telemetry.meters import Measure, Sampler
from tnt_notebook.telemetry.step_trace import StepTrace


def a_step(chance: random.Random) -> Breakdown:
    """Of 20 ms."""
    work = 0.012 + 0.001 * chance.random()
    return Breakdown(input=0.001, work=work, wait=0.0, skew=0.0, exchange=0.018 - work, other=0.001)


def used_by(rank: int) -> dict[str, Measure]:
    """What is measured of a pretended rank; its host is that of rank 0."""
    chance = random.Random(rank)
    held = itertools.count(400 + 40 * (rank % 4), 9)
    own: dict[str, Measure] = {
        "c": lambda: 88 + chance.uniform(-12, 12) - 30 * (rank % 5 == 3),
        "m": lambda: next(held),
    }
    of_host: dict[str, Measure] = {
        "h": lambda: 40 + chance.random(),
        "n": lambda: 8000 * chance.random(),
    }
    return own | (of_host if rank == 0 else {})


def forget() -> None:
    """Leaves the kernel to another notebook: without runs, widgets, magics and names."""
    for run in Run.begun:
        run.end()
    Run.begun.clear()
    Widget.close_all()
    shell = get_ipython()
    shell.extension_manager.unload_extension("tnt_notebook")
    shell.reset(new_session=False)


class Run:
    """A pretended fit, shown under the current cell, in a thread of its own."""

    begun: ClassVar[list[Run]] = []

    def __init__(
        self,
        title: str,
        ranks: int,
        *,
        epochs: int = 5,
        steps: int = 60,
        looks: int = 10,
        trace: Callable[[int], StepTrace] | None = None,
        on_save: Callable[[], str] | None = None,
        began: float | None = None,
    ) -> None:
        """Every `looks` steps there are a breakdown and, if `trace` makes it, a step trace; with
        `began` another kernel has begun the run, then."""
        self.asked_to_stop = threading.Event()
        self.view = LiveView(title, ranks, self.asked_to_stop.set, on_save, began)
        self._trace, self._looks = trace, looks
        self._ranks, self._epochs, self._steps = ranks, epochs, steps
        self._recorder = Recorder(ranks, "fit", epochs, start=time.time())
        self._ended = threading.Event()
        self._end: tuple[State, str | None, str] = ("finished", None, "")
        self._logs = [
            Log(rank, ranks, self._tell, Sampler(rank, ranks, used_by(rank)))
            for rank in range(ranks)
        ]
        self._thread = threading.Thread(target=self._train, daemon=True)

    def start(self) -> Run:
        """Shows the view and begins."""
        self.begun.append(self)
        self.view.show()
        self._thread.start()
        return self

    def end(self, state: State = "finished", error: str | None = None, traceback: str = "") -> None:
        """Ends the run where it stands, and returns when the view has ended too."""
        self._end = (state, error, traceback)
        self._ended.set()
        self._thread.join()

    def wait(self) -> None:
        """Returns when all epochs are done: a cell that blocks."""
        self._thread.join()

    def remember(self, points: int) -> Run:
        """Fills the history, as if the run had gone on for so many frames before."""
        chance = random.Random(2)
        start = time.time() - 0.2 * points
        recorder = Recorder(self._ranks, "fit", self._epochs, start=start)
        frames = []
        for point in range(points):
            slow = [0.7 if rank % 17 == 5 and point % 90 > 60 else 1 for rank in range(self._ranks)]
            samples = [int(factor * chance.randint(295, 315)) for factor in slow]
            recorder.step(
                1, point + 1, None, {"loss": 2.3, "accuracy": 0.1}, samples, start + 0.2 * point
            )
            frames.append(recorder.frame(start + 0.2 * point))
        self.view._ribbon.began = self.view._card.ribbon["began"] = start
        for frame in frames:
            self.view._card.draw(frame, [])
        self._recorder = recorder
        return self

    def _tell(self, news: Activities) -> None:
        self.view.tell([news])

    def do(self, name: str, *, but: int | None = None) -> None:
        """All ranks begin something, but one that waits for them."""
        for rank, log in enumerate(self._logs):
            log.begin("wait" if rank == but else name)

    def _train(self) -> None:
        recorder = self._recorder
        chance = random.Random(1)
        for name in ("import", "build", "trace"):
            self.do(name)
            self._ended.wait(0.1)
        for epoch in range(1, self._epochs + 1):
            self.do("train")
            for step in range(1, self._steps + 1):
                if self._ended.wait(0.02):  # what a step takes
                    break
                done = (epoch - 1) * self._steps + step
                loss = 2.3 * math.exp(-3 * done / (self._epochs * self._steps))
                loss += 0.05 * chance.random()
                logs = {"loss": loss, "accuracy": 1 - loss / 2.6}
                samples = [chance.randint(30, 34) for _ in range(self._ranks)]
                recorder.step(epoch, step, self._steps, logs, samples, time.time())
                if done % self._looks == 0:
                    recorder.activities([one for log in self._logs if (one := log.gather())])
                    recorder.breakdown([a_step(chance) for _ in range(self._ranks)], 0.02)
                    if self._trace:
                        recorder.seen({**self._trace(done), "time": time.time()})
                self.view.update(recorder.frame(time.time()))
            else:
                self.do("validate")
                self._ended.wait(0.05)
                self.do("epoch_end", but=1)
                self._ended.wait(0.05)
                validation = {"val_loss": loss + 0.1, "val_accuracy": 1 - loss / 2.4}
                recorder.epoch_end(epoch, logs | validation, time.time())
                self.view.update(recorder.frame(time.time()))
        state, error, traceback = self._end
        recorder.breakdown([a_step(chance) for _ in range(self._ranks)], 0.02)
        for log in self._logs:
            log.end()
        self.view.update(recorder.frame(time.time(), state))
        self.view.finish(state, error, traceback)
