"""Frames of a run, made on rank 0 from what every step tells."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras

from tnt_notebook.comm import World
from tnt_notebook.errors import SuspendedError
from tnt_notebook.parallel.data import Replica, share_of
from tnt_notebook.parallel.observe.divergence import Divergence
from tnt_notebook.parallel.observe.step_sampler import StepSampler
from tnt_notebook.sizes import size
from tnt_notebook.telemetry import Breakdown, Frame, Phase, Recorder, State
from tnt_notebook.telemetry.frame import Setup
from tnt_notebook.telemetry.pace import FRAME_S, STEP_BYTES_PER_S, STEP_S

Report = Callable[[Frame], None]

#: That are kept for what is learnt from a run.
_MOST_SAMPLES = 64

_BYTES_OF_A_RANK, _BYTES_OF_A_BOX = 50, 16


#: From the seconds of the median step of a run, how many steps there were, and samples of where
#: their time went on each rank: what came of its plan.
Learn = Callable[[float, int, Sequence[list[Breakdown]]], str]


class Progress:
    """Counts the steps of one run and reports frames. Does nothing where ``report`` is ``None``.

    Args:
        replicas: whose part of the data each rank works on.
        flops: of the model for a sample in this phase, if that is known.
        per_execution: steps that Keras makes in one call.
        exchange, input, plan, setup: what is said of them in frames; empty: nothing.
        learn: gives what came of the plan, on rank 0, at the end; None: there is none.
        seen: gives what it has found out so far; empty: nothing.
        by_allreduce: bytes that a rank would send in a step if the gradients were summed by an
            allreduce in float32; 0 where that is no measure.
        stops_on_nan: whether training ends when its loss is NaN, and weights are not finite.
        late_logs: whether logs are those of some steps ago.
        weights: those that are trained, as far as they are here.

    Attributes:
        stopped: whether it was ended before its end, as this rank knows by now.
    """

    def __init__(
        self,
        over: World,
        replicas: Sequence[Replica],
        report: Report | None,
        phase: Phase,
        epochs: int,
        steps: int | None,
        sampler: StepSampler,
        flops: float | None = None,
        per_execution: int = 1,
        exchange: str = "",
        input: str = "",
        plan: str = "",
        learn: Learn | None = None,
        setup: Setup | None = None,
        seen: Callable[[], str] = str,
        by_allreduce: float = 0.0,
        stops_on_nan: bool = True,
        late_logs: bool = False,
        weights: Callable[[], Iterable[keras.Variable]] = tuple,
    ) -> None:
        self.phase = phase
        self._over, self._replicas, self._steps = over, replicas, steps
        self._report = report if over.rank == 0 else None
        sharing = over.size // replicas[0].size
        self._recorder = Recorder(
            over.size,
            phase,
            epochs,
            start=time.time(),
            sharing=sharing,
            exchange=exchange,
            input=input,
            plan=plan,
            setup=setup,
        )
        self._plan, self._learn, self._samples = plan, learn, list[list[Breakdown]]()
        self._exchange, self._seen, self._by_allreduce = exchange, seen, by_allreduce
        self._epoch = 1
        self._sampler, self._flops = sampler, flops
        self._next_frame = self._next_sample = 0.0
        phase_of_keras = {"fit": "train", "evaluate": "test"}.get(phase, phase)
        self._begin_hook = "on_epoch_begin" if phase == "fit" else f"on_{phase_of_keras}_begin"
        self._batch_hook = f"on_{phase_of_keras}_batch_end"
        self._per_execution = per_execution
        self._done = self._batch = self._largest = 0  # steps of the epoch; samples
        self._written: dict[str, float] | None = None
        self.stopped = False
        self._divergence, self._stops_on_nan = Divergence(late_logs, weights), stops_on_nan

    @property
    def wants_to_stop(self) -> bool:
        """Whether this rank thinks that training should end."""
        return self._stops_on_nan and self._divergence.is_final

    @property
    def diverged(self) -> str:
        """What is said of a loss that is NaN, on rank 0; "" where none is."""
        return self._divergence.words(self._stops_on_nan and self.stopped)

    def count(self, samples: int) -> None:
        """A step has processed a global batch of this many samples; of several in one execution,
        the last one."""
        self._batch = samples
        self._largest = max(self._largest, samples)

    def _samples_of(self, steps: int) -> list[int]:
        """Of each rank in the latest steps: only the last batch of an epoch may be smaller."""
        counts = [0] * self._over.size
        for samples, times in ((self._batch, 1), (self._largest, steps - 1)):
            for rank, replica in enumerate(self._replicas):
                begin, end = share_of(samples, replica)
                counts[rank] += times * (end - begin)
        return counts

    def resume(
        self, epochs: Sequence[int], history: Mapping[str, Sequence[float]], epoch: int, step: int
    ) -> None:
        """Before the run begins: it does so after these epochs, and after so many steps of the
        running one; epochs count from 0."""
        ended = [epoch + 1 for epoch in epochs]
        self._recorder.earlier(ended, history, epoch + 1, step, self._steps)

    def written(self, checkpoint: dict[str, float] | None) -> None:
        """The last checkpoint that is on disk."""
        if checkpoint is not None and checkpoint != self._written:
            self._written = checkpoint
            self._recorder.checkpoint(dict(checkpoint))

    def wants_a_sample(self) -> bool:
        """Whether this rank thinks that it is time to sample the steps of all ranks."""
        return self._report is not None and time.monotonic() >= self._next_sample

    def sample(self, whole_run: bool = False) -> None:
        """Tells what all ranks did, since the last sample or in the whole run. Collective."""
        sample = self._sampler.sample_of_all() if whole_run else self._sampler.sample()
        if sample is None:
            return
        self._recorder.activities(sample.activities)
        step_s = sample.step_s / self._per_execution if sample.step_s and sample.among else None
        parts = [Breakdown(*(s / self._per_execution for s in one)) for one in sample.breakdown]
        self._recorder.breakdown(parts, step_s)
        if step_s is not None and self._learn is not None:
            # That of the whole run is one of those before, where there were any.
            if sample.which == "median" and not (whole_run and self._samples):
                self._samples = [*self._samples, parts][-_MOST_SAMPLES:]
            if whole_run and self._samples:
                steps = self._sampler.steps * self._per_execution
                self._say_what_came(self._learn(step_s, steps, self._samples))
        sent = None if sample.sent is None else sample.sent / self._per_execution
        self._recorder.seen(
            sample.step, sample.memory, sample.energy, sample.rate, self._flops, sent
        )
        if about := "; ".join(filter(None, self._about_exchange(sent))):
            self._recorder.say("exchange", about)
        found = sum(len(row["kinds"]) for row in sample.step["rows"]) if sample.step else 0
        shown = _BYTES_OF_A_RANK * self._over.size + _BYTES_OF_A_BOX * found
        self._next_sample = time.monotonic() + max(STEP_S, shown / STEP_BYTES_PER_S)

    def _say_what_came(self, of_plan: str) -> None:
        """In a note; where nobody shows it, it is printed."""
        if of_plan:
            self._recorder.say("plan", f"{self._plan}; {of_plan}")
        if of_plan and self._report is None:
            print(f"{of_plan}.", flush=True)

    def _about_exchange(self, sent: float | None) -> Iterator[str]:
        yield self._exchange
        if self._exchange and sent is not None and self._by_allreduce:
            whole = size(self._by_allreduce)
            yield (
                f"each rank sends {size(sent)} a step, and {whole} by allreduce in float32"
                if sent
                else "ranks share memory, so nothing has to be sent"
            )
        yield self._seen()

    def skipped(self, skipped: str) -> None:
        """At the end, what ranks could not read; where nobody shows it, it is printed."""
        if skipped and self._report is not None:
            self._recorder.say("skipped", skipped)
        elif skipped and self._over.rank == 0:
            print(f"{skipped}.")

    def watch(self, hook: str, number: int, logs: dict[str, Any]) -> None:
        """Called after every hook of Keras's callbacks, with the number of its epoch or batch."""
        if self._over.rank == 0 and self.phase == "fit":
            self._watch_loss(hook, number, logs)
        if self._report is None:
            return
        now = time.time()
        if hook == self._begin_hook:
            self._done = 0
            self._recorder.epoch_begin(now)
        elif hook == self._batch_hook:
            scalars = logs
            if "outputs" in logs:  # of predict: all rows of the global batch, and no scalars
                self.count(len(keras.tree.flatten(logs["outputs"])[0]))
                scalars = {}
            step = min(number + 1, self._steps or number + 1)
            samples = self._samples_of(max(1, min(self._per_execution, step - self._done)))
            self._done = step
            self._recorder.step(self._epoch, step, self._steps, scalars, samples, now)
            if now >= self._next_frame:
                self._next_frame = now + FRAME_S
                self._report(self._recorder.frame(now))
        elif hook == "on_epoch_end":
            self._recorder.epoch_end(number + 1, logs, now)
            self._report(self._recorder.frame(now))

    def _watch_loss(self, hook: str, number: int, logs: Mapping[str, Any]) -> None:
        if hook == self._begin_hook:
            self._epoch = number + 1
        elif hook == self._batch_hook:
            self._divergence.step(self._epoch, number + 1, logs)
        elif hook == "on_epoch_end":
            self._divergence.look(ends_epoch=True)
        if self._divergence.since is not None:
            self._recorder.say("diverged", self.diverged)

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Around the run: reports the last frame, which says how it ended."""
        state: State = "failed"
        if self._report is not None:
            self._report(self._recorder.frame(time.time()))
        try:
            yield
            state = "stopped" if self.stopped else "finished"
        except SuspendedError:
            state = "stopped"
            raise
        finally:
            if self._report is not None:
                self._report(self._recorder.frame(time.time(), state))
            elif self.diverged:
                print(self.diverged, flush=True)
