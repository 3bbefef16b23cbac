"""From the steps of a run to its frames.

The recorder has no clock: every call takes the time, so a run can be replayed and tested.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tnt_notebook.telemetry.activities import Activities
from tnt_notebook.telemetry.breakdown import Breakdown
from tnt_notebook.telemetry.frame import (
    FRAME_VERSION,
    Frame,
    Phase,
    Row,
    Setup,
    Spent,
    State,
    finite_logs,
    with_news,
)  # fmt: skip
from tnt_notebook.telemetry.meters import parted
from tnt_notebook.telemetry.sampling import evenly
from tnt_notebook.telemetry.step_trace import StepTrace

RECENT_STEPS = 64
MAX_ROWS = 500


class Recorder:
    """Counts what all ranks did, and makes frames of it.

    One training thread calls `epoch_begin`, `step` and `epoch_end`; `frame` may be called from
    another thread.

    Example::

        recorder = Recorder(ranks=2, epochs=3, start=time.time())
        recorder.step(1, 1, 100, {"loss": 0.7}, [32, 32], now=time.time())
    """

    def __init__(
        self,
        ranks: int,
        phase: Phase = "fit",
        epochs: int = 1,
        *,
        start: float,
        sharing: int = 1,
        exchange: str = "",
        input: str = "",
        plan: str = "",
        setup: Setup | None = None,
    ) -> None:
        """
        Args:
            ranks: Number of ranks that process samples.
            phase: What the run does.
            epochs: Number of the last epoch that shall run; 1 for evaluate and predict.
            start: Unix time at which the run began, in seconds.
            sharing: Ranks that process the same samples.
            exchange, input, plan, setup: As in :class:`Frame`; empty: it is not said.
        """
        self._sharing = sharing
        self._said: dict[str, str] = {"exchange": exchange, "input": input, "plan": plan}
        self._setup, self._epochs, self._start = setup, epochs, start
        self._phase: Phase = phase
        self._lock = threading.Lock()
        self._seq = 0
        self._epoch = self._step = 0
        self._steps: int | None = None
        self._logs: dict[str, Any] = {}
        self._samples: NDArray[np.int64] = np.zeros(ranks, np.int64)
        self._rows: list[Row] = []
        self._rows_are_new = False
        self._seen: dict[str, Any] = {}
        self._pace = _Pace(start)
        self._batches: deque[NDArray[np.float64]] = deque(maxlen=RECENT_STEPS)
        self._step_s: float | None = None

    def epoch_begin(self, now: float) -> None:
        """Records that an epoch begins, at a Unix time: its first step begins with it."""
        with self._lock:
            self._pace.epoch_begun(now)

    def step(
        self,
        epoch: int,
        step: int,
        steps: int | None,
        logs: Mapping[str, Any],
        samples_per_rank: Sequence[int],
        now: float,
    ) -> None:
        """Records the end of a step, or of several in one execution.

        Args:
            epoch: The running epoch, counted from 1.
            step: Steps of this epoch that have ended.
            steps: Steps of a whole epoch; ``None`` when not known.
            logs: Loss and metrics, as Keras hands them to callbacks. Values are turned into floats
                when a frame is made, not before: on a GPU that would wait for the device.
            samples_per_rank: Samples of each rank since the last call; one number per rank.
            now: Unix time in seconds.
        """
        with self._lock:
            advanced = step - self._step if epoch == self._epoch else step
            self._epoch, self._step, self._steps = epoch, step, steps
            self._logs = dict(logs)
            self._samples += samples_per_rank
            self._batches.append(np.array(samples_per_rank) / max(1, advanced))
            self._pace.step_ended(advanced, now)

    def epoch_end(self, epoch: int, logs: Mapping[str, Any], now: float) -> None:
        """Records the end of an epoch, counted from 1, at a Unix time; its logs are those of the
        validation, too."""
        row: Row = {"epoch": epoch, **finite_logs(logs)}
        with self._lock:
            self._rows = evenly([*self._rows, row], MAX_ROWS, _epoch_of)
            self._rows_are_new = True
            self._pace.epoch_ended(self._step, now)

    def earlier(
        self,
        epochs: Sequence[int],
        logs: Mapping[str, Sequence[float]],
        epoch: int,
        step: int,
        steps: int | None,
    ) -> None:
        """Records how far the run was when it resumed; `epoch`, `step` and `steps` as in `step`.

        Args:
            epochs: that had ended, counted from 1.
            logs: of each, loss and metrics; columns of another length are left out.
        """
        whole = {name: column for name, column in logs.items() if len(column) == len(epochs)}
        with self._lock:
            self._epoch, self._step, self._steps = epoch, step, steps
            for i, ended in enumerate(epochs):
                row = finite_logs({name: column[i] for name, column in whole.items()})
                self._rows.append({"epoch": ended, **row})
            self._rows = evenly(self._rows, MAX_ROWS, _epoch_of)
            self._rows_are_new = True

    def checkpoint(self, written: Row) -> None:
        """Records that a checkpoint is on disk."""
        with self._lock:
            self._seen["checkpoint"] = written

    def activities(self, news: Sequence[Activities]) -> None:
        """Records what ranks have done, and measured."""
        with self._lock:
            self._seen = with_news(self._seen, parted(news))

    def breakdown(self, of_ranks: Sequence[Breakdown], step_s: float | None = None) -> None:
        """Records where the time of a step goes on each rank: of the median one since the last
        look, or, at the end, in the whole run. Zeros say nothing, and are ignored.

        Args:
            step_s: how long that step took, in seconds; None: it is not one for others.
        """
        with self._lock:
            if step_s is not None:
                self._seen["step_s"] = self._step_s = step_s
            if any(map(sum, of_ranks)):
                rounded = [[float(f"{s:.4g}") for s in seconds] for seconds in of_ranks]
                self._seen["breakdown"] = rounded
                if self._setup is not None:
                    self._seen["setup"] = self._setup

    def seen(
        self,
        trace: StepTrace | None = None,
        memory: Sequence[int] = (),
        energy: float | None = None,
        rate: float | None = None,
        flops: float | None = None,
        sent: float | None = None,
    ) -> None:
        """Records what else a look found: what ranks did in that step, and numbers as in
        :class:`Frame`, but for the memory of each rank, which is in bytes."""
        with self._lock:
            if trace is not None:
                self._seen["step_trace"] = trace
            if memory:
                self._seen["memory"] = [round(count / (1 << 20)) for count in memory]
            numbers = {"energy": energy, "rate": rate, "flops": flops, "sent": sent}
            for name, number in numbers.items():
                if number is not None:
                    self._seen[name] = float(f"{number:.4g}")

    def say(self, what: Literal["exchange", "plan", "diverged", "skipped"], words: str) -> None:
        """Records what is known of that by now; "" is nothing."""
        with self._lock:
            self._said[what] = words

    def frame(self, now: float, state: State = "running") -> Frame:
        """The run as it stands at a Unix time, ready for JSON; any state but ``"running"`` makes it
        the last frame."""
        with self._lock:
            self._seq += 1
            logs = self._logs
            frame = Frame(
                v=FRAME_VERSION, seq=self._seq, time=now, start=self._start, phase=self._phase,
                state=state, epoch=self._epoch, epochs=self._epochs, step=self._step,
                steps=self._steps or self._pace.steps_of_an_epoch,
                elapsed=max(0.0, now - self._start),
                eta=self._eta(now) if state == "running" else None, logs={},
                rates=self._rates(), samples=self._samples.tolist(), sharing=self._sharing,
                spent=self._pace.spent.copy(),
            )  # fmt: skip
            # Types know the names of a literal only.
            frame.update({name: text for name, text in self._said.items() if text})  # type: ignore[typeddict-item]
            # The last frame repeats the rows: an earlier one may have been overtaken on the way.
            if self._rows and (self._rows_are_new or state != "running"):
                frame["rows"] = list(self._rows)
                self._rows_are_new = False
            frame.update(self._seen)  # type: ignore[typeddict-item]
            if state == "running":
                self._seen = {}
        frame["logs"] = finite_logs(logs)
        return frame

    def _rates(self) -> list[float]:
        """A batch of usual size by the median step, shared among the ranks as batches were."""
        step_s = self._step_s or self._pace.median_step_s
        if not self._batches or step_s is None:
            return [0.0] * len(self._samples)
        batch = statistics.median_low(float(batch.sum()) for batch in self._batches)
        of_ranks = np.sum(self._batches, axis=0)
        rates = of_ranks * (batch / max(1, of_ranks.sum()) / step_s)
        return [float(f"{rate:.7g}") for rate in rates.tolist()]

    def _eta(self, now: float) -> float | None:
        steps = self._steps or self._pace.steps_of_an_epoch
        if steps is None:
            return None
        epochs_left = max(0, self._epochs - self._epoch)
        if self._rows and self._rows[-1]["epoch"] == self._epoch:
            return self._pace.time_for(epochs_left * steps, epochs_left, now)
        steps_left = max(0, steps - self._step) + epochs_left * steps
        return self._pace.time_for(steps_left, epochs_left + 1, now)


def _epoch_of(row: Row) -> float:
    return row["epoch"] or 0.0


class _Pace:
    """How long a step takes, and what an epoch costs beside its steps (validation, checkpoints).

    Args:
        start: Unix time at which the run began.
    """

    def __init__(self, start: float) -> None:
        self.steps_of_an_epoch: int | None = None
        self.spent = Spent(steps=0, steps_s=0.0, first_steps=0, first_steps_s=0.0)
        self._last = start
        self._step_times: deque[float] = deque(maxlen=RECENT_STEPS)
        self._epoch_ends: deque[float] = deque(maxlen=RECENT_STEPS)
        self._between_epochs = True

    @property
    def median_step_s(self) -> float | None:
        """Of the latest steps; None without any."""
        return statistics.median(self._step_times) if self._step_times else None

    def epoch_begun(self, now: float) -> None:
        self._last, self._between_epochs = now, True

    def step_ended(self, advanced: int, now: float) -> None:
        took, spent = now - self._last, self.spent
        # The first step of an epoch counts apart: it traces, or begins to read data.
        if self._between_epochs:
            spent["first_steps"] += advanced
            spent["first_steps_s"] += took
        else:
            spent["steps"] += advanced
            spent["steps_s"] += took
            if advanced > 0:
                self._step_times.append(took / advanced)
        self._last, self._between_epochs = now, False

    def epoch_ended(self, steps: int, now: float) -> None:
        if not self._between_epochs:
            self._epoch_ends.append(now - self._last)
        self.steps_of_an_epoch = steps
        self._last, self._between_epochs = now, True

    def time_for(self, steps: int, epoch_ends: int, now: float) -> float | None:
        if not self._step_times:
            return None
        # One long pause must not move the estimate, a slow step in every ten must: clip, then mean.
        ceiling = 5 * statistics.median(self._step_times)
        step_time = statistics.fmean(min(time, ceiling) for time in self._step_times)
        end_time = statistics.median(self._epoch_ends) if self._epoch_ends else 0.0
        return max(0.0, steps * step_time + epoch_ends * end_time - (now - self._last))
