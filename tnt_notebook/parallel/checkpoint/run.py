"""The checkpoints of one run: of a cell of ``%%tnt_fit``, a ``distributed`` block, a ``tnt.Model``.

Calls of fit are counted. In a run that goes on, one that had ended is not trained again: the model
gets the state from its end. What lies between them simply runs again.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tnt_notebook.comm import World, stop
from tnt_notebook.errors import CheckpointError
from tnt_notebook.parallel.checkpoint import folder
from tnt_notebook.parallel.checkpoint.config import Checkpoint
from tnt_notebook.parallel.checkpoint.opening import opened, run_of
from tnt_notebook.parallel.checkpoint.reading import newest
from tnt_notebook.parallel.checkpoint.snapshot import Snapshot
from tnt_notebook.parallel.checkpoint.writer import Writer
from tnt_notebook.parallel.consistency import agreement, seeds


@dataclass
class Memory:
    """What a rank keeps of a run in its own memory.

    Attributes:
        run: what tells it from others.
        random: the first random state.
        latest: the last two snapshots, as another rank may have got to the first of them only.
        ended: by call of fit, those at its end, if there are no files of them.
    """

    run: str
    random: dict[str, Any]
    latest: list[Snapshot] = field(default_factory=list)
    ended: dict[int, Snapshot] = field(default_factory=dict)


#: Of the last run in this process that kept snapshots in memory.
memory: Memory | None = None


class RunCheckpoints:
    """Made on all ranks at once; sets the random state of a run that goes on.

    Attributes:
        fits: calls of fit so far.
        steps: batches of all of them.
        start: where the run goes on; ``None``: at its beginning.

    Raises:
        CheckpointError: on all ranks; the folder cannot be used, or holds another run.
    """

    def __init__(self, over: World, options: Checkpoint) -> None:
        self.over, self.options = over, options
        self.fits = self.steps = 0
        self.start: Snapshot | None = None
        self._ends: dict[int, Snapshot] = {}
        self._next = time.monotonic() + options.seconds
        self._steps_then = 0
        self._writer: Writer | None = None
        self._signal = _leave_on_signal()
        seeds.seed_tensorflow()  # without a seed the order of the data could not be had again
        random = None
        if options.folder is not None:
            self._where, self._about, goes_on = opened(over, options)
            self._writer = Writer(over, self._where, options.keep, self._about["holder"])
            random = self._about["random"]
            if goes_on:  # what is newer cannot be used, and is in the way of what comes
                self.start, self._ends, useless = newest(over, self._where)
                if over.rank == 0:
                    folder.remove(self._where, useless)
                agreement.agree(over, {"call": "find checkpoints"})
        if options.in_memory:
            random = self._remember(random)
        if random is not None:
            seeds.set_state(random, anew=True)

    def _remember(self, random: dict[str, Any] | None) -> dict[str, Any]:
        """Finds what this process has in memory of the run, or begins to remember it."""
        global memory
        own = memory
        if own is None or not self.options.resume or own.run != run_of(self.options):
            own = None
        places = [[*s.place] for s in own.latest] if own else []
        common = agreement.everyones(self.over, places)
        shared = [place for place in common[0] if all(place in theirs for theirs in common)]
        if own is not None and shared:
            latest = next(s for s in own.latest if [*s.place] == max(shared))
            if self.start is None or latest.place >= self.start.place:
                self.start = latest
                self._ends |= {n: s for n, s in own.ended.items() if n < latest.place.fit}
            memory = Memory(own.run, own.random, [latest], own.ended)
        else:
            memory = Memory(run_of(self.options), random or seeds.state())
        return memory.random

    # Calls of fit ---------------------------------------------------------------------------------

    def begin_fit(self) -> Snapshot | None:
        """Counts a call of fit, and gives where it goes on, or its end, if it had ended; ``None``
        if it is new. Raises CheckpointError on all ranks if it had ended, but how is not known."""
        self.fits += 1
        self._next = time.monotonic() + self.options.seconds
        start = self.start
        if start is None or self.fits > start.place.fit:
            return None
        found = start if self.fits == start.place.fit else self._ends.get(self.fits)
        if found is None:
            raise CheckpointError(
                f"Fit {self.fits} of this run had ended, and there is no checkpoint of its end."
            )
        self.steps = self._steps_then = found.place.steps
        return found

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint; rank 0 says so."""
        if self.over.rank != 0 or (self._writer is not None and not self._writer.is_idle):
            return False
        every = self.options.every_steps
        # Asked before a step.
        by_steps = every is not None and self.steps + 1 - self._steps_then >= every
        return by_steps or time.monotonic() >= self._next

    def due_in(self) -> float:
        """In how many steps after the one that is under way a checkpoint is due, by their number;
        infinite if it never is."""
        every = self.options.every_steps
        return math.inf if every is None else every - (self.steps + 1 - self._steps_then)

    def keep(self, snapshot: Snapshot, owners: list[int]) -> None:
        """Keeps a snapshot, in memory, in files, or both; ``owners``: who writes each variable."""
        place = snapshot.place
        self._next, self._steps_then = time.monotonic() + self.options.seconds, place.steps
        if memory is not None and self.options.in_memory:
            if place.ended and self._writer is None:
                memory.ended[place.fit] = snapshot
            memory.latest = [*memory.latest[-1:], snapshot]
        if self._writer is not None:
            mine = {f"variable/{i}" for i, rank in enumerate(owners) if rank == self.over.rank}
            arrays = {
                name: array
                for name, array in snapshot.arrays.items()
                if name in mine
                or name.startswith("exchange/")
                or (self.over.rank == 0 and not name.startswith("variable/"))
            }
            self._writer.write(Snapshot(snapshot.state, arrays))

    def wait(self) -> None:
        """Until what was kept is on disk, or that has failed. Collective."""
        if self._writer is not None:
            self._writer.wait(self.over.timeout_s)
            agreement.agree(self.over, {"call": "write a checkpoint"})

    @property
    def written(self) -> dict[str, float] | None:
        """On rank 0: the last checkpoint that is on disk, as a frame says it."""
        return self._writer.latest if self._writer is not None else None

    def finish(self) -> None:
        """The run has come to its end: it does not go on of its own accord any more. Collective."""
        self.wait()
        if self._writer is not None and self.over.rank == 0:
            folder.write_run(self._where, {**self._about, "ended": True})

    def close(self) -> None:
        """Gives up what is not written yet."""
        self._signal()
        if self._writer is not None:
            self._writer.close()


def _leave_on_signal() -> Callable[[], None]:
    """Makes SIGUSR2, which batch systems send before the time is over, a request to leave training
    with a checkpoint, unless this process has another use for it. Gives what ends that.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:
        return lambda: None

    def leave(signum: int, frame: Any) -> None:
        stop.leave.set()

    def end() -> None:
        if signal.getsignal(signal.SIGUSR2) is leave:
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)

    signal.signal(signal.SIGUSR2, leave)
    return end
