"""One request on some ranks: sends it, collects messages and answers, and bounds every wait.

Messages arrive in ipyparallel's IO thread and go into a queue; whoever waits (the notebook's main
thread for a cell, a thread of its own for a fit) takes them out, so printing happens there.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import ipyparallel as ipp
from ipyparallel.serialize import PrePickled

from tnt_notebook import protocol
from tnt_notebook.cluster.files.log_tails import LogTails
from tnt_notebook.cluster.output.cell_output import SHOWN, CellOutput
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.requests.engines import RESTARTED, Engines
from tnt_notebook.cluster.requests.failure import Failure, failure_of
from tnt_notebook.errors import ClusterError, EndedError
from tnt_notebook.jupyter.client import forget_text

TICK_S = 0.05
INTERRUPT_AFTER_S = 5.0  # a rank raised, and another does not end although it was freed
FREED_AFTER_S = 1.0  # a person wants an end: who waited has answered by then, the others have not
TOLD_AFTER_S = 0.5  # a rank died: MPI has told the others by then, if it knows
#: Before variables are lost. A rank may wait for a file system, and IPython takes long to tell what
#: goes wrong within TensorFlow, where many share a core.
GIVE_UP_AFTER_S = 60.0
OUTPUT_WAIT_S = 2.0  # an answer may overtake the last output


class RanksDied(ClusterError):
    """Ranks left while they were needed; the cluster says of what they died."""

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(f"{ranks_label(ranks)} died.")
        self.ranks = ranks


class RanksStuck(ClusterError):
    """A rank raised, or a person wants an end, and others could not be freed."""

    def __init__(self, raised: list[int], stuck: list[int]) -> None:
        why = f"{ranks_label(raised)} raised" if raised else "It was interrupted"
        super().__init__(f"{why}, and {ranks_label(stuck)} did not end.")
        self.raised = raised
        self.stuck = stuck


class Abandoned(ClusterError):
    """A person pressed interrupt twice; the ranks go on."""


class Execution:
    """A request that runs on some ranks of a cluster.

    Args:
        engines: of the cluster.
        ranks: where to run.
        on_data: called with what a rank publishes as data, in the thread that waits.
        tails: of the ranks' logs: to be shown where their messages go to another notebook.
        on_tick: called again and again while it waits.
        clears: whether ranks may clear what the cell shows.
        needs: if any of these dies, none can go on; default: all of the cluster that live.
    """

    def __init__(
        self,
        engines: Engines,
        ranks: Sequence[int],
        on_data: Callable[[dict[str, Any]], None] | None = None,
        tails: LogTails | None = None,
        on_tick: Callable[[], None] | None = None,
        clears: bool = True,
        needs: Sequence[int] | None = None,
    ) -> None:
        self.ranks = list(ranks)
        self._needs = None if needs is None else set(needs)
        self._engines = engines
        self._client = engines.client
        self._on_data = on_data
        self._tails = tails
        self._on_tick = on_tick
        self._events: queue.SimpleQueue[tuple[int, str, Any]] = queue.SimpleQueue()
        # What a person wants does not queue behind what ranks print.
        self._wishes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._output = CellOutput(self.ranks, engines.page, clears)
        self._requests: dict[str, int] = {}  # ranks by message
        self._unanswered = set(self.ranks)
        self._unfinished_output = set(self.ranks)
        self.answers: dict[int, Any] = {}
        self.failures: dict[int, Failure] = {}
        self._heard_at = 0.0
        self._died: list[int] = []
        self._freed = False
        self._failed_at: float | None = None
        self._interrupted_stuck = False
        self._aborted_at: float | None = None
        self._interrupts = 0

    def execute(self, code: str) -> Execution:
        """Sends a cell."""
        return self._send(self._client.send_execute_request, code, silent=False)

    def call(self, function: protocol.Call, *arguments: Any) -> Execution:
        """Sends a call of a function of the engine side; only data crosses."""
        reference = ipp.Reference(function.expression)
        # Serialised once, not once per rank.
        packed = [a if isinstance(a, PrePickled) else PrePickled(a) for a in arguments]
        return self._send(self._client.send_apply_request, reference, packed)

    @property
    def pending(self) -> list[int]:
        """Ranks that have not answered."""
        return sorted(self._unanswered)

    def interrupt(self) -> None:
        """Ctrl-C for the ranks that have not answered, through their nannies."""
        self._signal(signal.SIGINT)

    def request_stop(self) -> None:
        """Asks the ranks to end their fit after the current step."""
        self._signal(protocol.STOP)

    def abort(self) -> None:
        """Ends it on all ranks, wherever they are: those that wait for each other are freed, then
        the others interrupted. Safe from any thread; who cannot be freed is found out by `wait`."""
        self._wish("abort")

    def request_stacks(self) -> None:
        """Asks the ranks that have not answered to write into their logs where they are."""
        self._signal(protocol.STACKS)

    def wait(self, timeout: float | None = None) -> None:
        """Shows output until all ranks have answered.

        Raises:
            RanksDied: a rank of the cluster left meanwhile.
            RanksStuck: a rank raised, or `abort` was called, and others could not be freed within
                a minute.
            Abandoned: Ctrl-C twice.
            ClusterError: ``timeout`` seconds have passed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._interrupts_as_events():
            while not self._complete():
                self._take_events()
                self._check_ranks()
                if deadline is not None and time.monotonic() > deadline:
                    raise ClusterError(
                        f"{ranks_label(self.pending)} did not answer within {timeout:g} s. "
                        "%tnt_cluster restart starts the engines anew."
                    )
        if self._tails is not None:
            self._take_tails(self._tails.left_out())
        self._output.show_rest(time.monotonic())
        self._engines.hear_late(self._requests, self._output, self._unheard())
        if self._died:
            raise RanksDied(self._died)

    # What arrives -------------------------------------------------------------------------

    def _send(self, request: Callable[..., Any], *said: Any, **how: Any) -> Execution:
        self._client.forget_answered()
        if gone := [rank for rank in self.ranks if rank not in self._client.ids]:
            raise RanksDied(gone)
        try:
            identities = self._client.identities(self.ranks)
        except (KeyError, ipp.error.NoEnginesRegistered):  # the client has heard of a death since
            raise RanksDied([r for r in self.ranks if r not in self._client.ids]) from None
        stream = self._client.requests
        with self._interrupts_as_events():  # what is sent is to be waited for
            for rank, ident in zip(self.ranks, identities, strict=True):
                request(stream, *said, **how, ident=ident, message_future_hook=self._listen(rank))
        return self

    def _listen(self, rank: int) -> Callable[[Any], None]:
        """Hooks into a request before it is sent, so that no message can be missed."""

        def hook(future: Any) -> None:
            metadata = future.output.metadata
            self._requests[future.msg_id] = rank

            def on_message(message: dict[str, Any]) -> None:
                kind = message["header"]["msg_type"]
                forget_text(metadata)
                if kind == "data_message":
                    self._events.put((rank, kind, dict(metadata["data"])))
                else:
                    self._events.put((rank, kind, message["content"]))

            future.iopub_callbacks.append(on_message)
            future.add_done_callback(lambda f: self._events.put((rank, "answer", f.result())))
            future.output.add_done_callback(
                lambda f: self._events.put((rank, "output ended", None))
            )

        return hook

    def _take_events(self) -> None:
        try:
            event = self._events.get(timeout=TICK_S)
            # Not until there is none: who prints fast would never be shown.
            until = time.monotonic() + TICK_S
            while True:
                self._take(*event)
                self._take_wishes()  # after it: the second Ctrl-C raises, and no event may be lost
                if time.monotonic() > until:
                    break
                event = self._events.get_nowait()
        except queue.Empty:
            pass
        if self._tails is not None:
            self._take_tails(self._tails.new())
        if self._on_tick is not None:
            self._on_tick()
        self._output.show(time.monotonic())

    def _take_tails(self, found: list[tuple[int, str]]) -> None:
        for rank, text in found:
            self._output.take(rank, "stream", {"name": "stdout", "text": text}, time.monotonic())

    def _unheard(self) -> Iterator[tuple[int, str, Any]]:
        while not self._events.empty():
            yield self._events.get()

    def _wish(self, kind: str) -> None:
        """Tells whoever waits what a person wants; from any thread, and in signal handlers."""
        self._wishes.put(kind)
        self._events.put((-1, "wish", None))

    def _take_wishes(self) -> None:
        while not self._wishes.empty():
            if self._wishes.get() == "interrupt":
                self._on_interrupt()
            elif self._aborted_at is None:
                self._aborted_at = time.monotonic()
                self._signal(protocol.FREE)

    def _take(self, rank: int, kind: str, content: Any) -> None:
        self._heard_at = now = time.monotonic()
        if kind in SHOWN:
            self._output.take(rank, kind, content, now)
        elif kind == "data_message" and self._on_data is not None:
            self._on_data(content)
        elif kind == "output ended":
            self._unfinished_output.discard(rank)
            if self._tails is None:
                self._output.end(rank, now)
        elif kind == "answer":
            self._take_answer(rank, content, now)

    def _take_answer(self, rank: int, answer: Any, now: float) -> None:
        self._unanswered.discard(rank)
        if isinstance(answer, dict) and "error" in answer:
            self.failures[rank] = Failure(**answer["error"])
        elif not isinstance(answer, BaseException):
            self.answers[rank] = answer
        elif isinstance(answer, ipp.error.EngineError) or (
            isinstance(answer, ipp.error.RemoteError) and answer.ename == "EngineError"
        ):
            self._unanswered.add(rank)  # it died: _check_ranks tells, in a moment
        else:
            self.failures[rank] = failure_of(answer)
        if self.failures and self._failed_at is None:
            self._failed_at = now

    def _signal(self, number: int) -> None:
        alive = [rank for rank in self.pending if rank in self._client.ids]
        if alive:
            self._client.send_signal(int(number), targets=alive, block=False)

    # Bounds -------------------------------------------------------------------------------

    def _complete(self) -> bool:
        if self._unanswered:
            return False
        waited = time.monotonic() - self._heard_at
        return not self._unfinished_output or waited > OUTPUT_WAIT_S

    def _check_ranks(self) -> None:
        if not self._unanswered:
            return
        dead = self._newly_dead()
        if dead and self._engines.restarting:
            self._give_up(EndedError(RESTARTED))
        if dead:
            self._died = dead
            if not self._engines.survives:
                self._give_up(RanksDied(self._died))
            # The others are told by MPI, and answer: what a person sees is that they live.
            self._failed_at = self._failed_at or time.monotonic()
            self._unanswered.difference_update(dead)
            self._unfinished_output.difference_update(dead)
        since = self._failed_at if self._aborted_at is None else self._aborted_at
        if since is None:
            return
        waited = time.monotonic() - since
        if self._died and waited > TOLD_AFTER_S and not self._freed:
            self._freed = True
            self._signal(protocol.FREE)  # of a host that is silent MPI tells nobody
        patience = INTERRUPT_AFTER_S if self._aborted_at is None else FREED_AFTER_S
        if waited > patience and not self._interrupted_stuck:
            self._interrupted_stuck = True
            self.interrupt()
        if waited > GIVE_UP_AFTER_S:
            died, stuck = RanksDied(self._died), RanksStuck(sorted(self.failures), self.pending)
            self._give_up(died if self._died else stuck)

    def _newly_dead(self) -> list[int]:
        dead = self._engines.dead()
        if self._needs is not None:  # all lived when it began; another may have been told since
            return [rank for rank in dead if rank in self._needs]
        return [rank for rank in dead if rank not in self._engines.lost]

    def _give_up(self, error: ClusterError) -> NoReturn:
        self._output.show_rest(time.monotonic())
        raise error

    @contextmanager
    def _interrupts_as_events(self) -> Iterator[None]:
        """Turns Ctrl-C into an event: an exception in the middle of a step could lose one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = signal.signal(signal.SIGINT, lambda *_: self._wish("interrupt"))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

    def _on_interrupt(self) -> None:
        self._interrupts += 1
        where = ranks_label(self.pending or self.ranks)
        if self._interrupts > 1:
            raise Abandoned(
                f"The interrupted cell still runs on {where}. The next cell waits for its end; "
                "%tnt_cluster restart ends it now, and variables are lost."
            )
        print(f"interrupting {where} (interrupt once more to leave)", flush=True)
        self.interrupt()
