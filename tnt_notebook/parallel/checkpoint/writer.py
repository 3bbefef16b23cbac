"""Writes snapshots to files beside training, in a thread of each rank.

rank 0    copies, writes its shard ----.            .-- all have: manifest, rename, old ones go
rank 1    copies, writes its shard -- notice ------'
          |  the step waits for this only
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tnt_notebook.comm import World
from tnt_notebook.parallel.checkpoint import files, folder
from tnt_notebook.parallel.checkpoint.snapshot import Place, Snapshot

#: Kind of the notices that go from the writers of all ranks to that of rank 0.
NOTICE = 17

_POLL_S = 0.02
_ENOUGH_S = 600.0  # without a word of a rank


class _NotWrittenError(Exception):
    """The message says which rank has not written its part, and why."""


class Writer:
    """Of one rank. Keeps so many checkpoints of a running fit, and finishes none that is not its
    ``holder``'s.

    Attributes:
        latest: on rank 0, the last checkpoint that all ranks have finished, as a frame says it.
    """

    def __init__(self, over: World, where: Path, keep: int, holder: str) -> None:
        self._over, self._where, self._keep, self._holder = over, where, keep, holder
        self._waiting: queue.SimpleQueue[tuple[Snapshot, float] | None] = queue.SimpleQueue()
        self._open = 0
        self._changed = threading.Condition()
        self._leave = threading.Event()
        self._thread: threading.Thread | None = None
        self._said = False
        self.latest: dict[str, float] | None = None

    def write(self, snapshot: Snapshot) -> None:
        """Begins to write. All ranks do so in the same order."""
        with self._changed:
            self._open += 1
        self._waiting.put((snapshot, time.monotonic()))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tnt-checkpoints", daemon=True)
            self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether all is written; on rank 0, by all ranks."""
        return self._open == 0

    def wait(self, timeout_s: float) -> bool:
        """Waits until all is written, or that has failed; ``False`` if it lasts longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, timeout_s)

    def close(self) -> None:
        """Gives up what is not written yet."""
        self._leave.set()
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            snapshot, begun = job
            try:
                if not self._leave.is_set():
                    self._write(snapshot, begun)
            except _NotWrittenError as error:
                self._fail(snapshot.place, str(error))
            except Exception as error:  # it must do no harm to training, whatever it is
                self._fail(snapshot.place, f"rank {self._over.rank}: {_brief(error)}")
            finally:
                del job, snapshot
                with self._changed:
                    self._open -= 1
                    self._changed.notify_all()

    def _write(self, snapshot: Snapshot, begun: float) -> None:
        rank, name = self._over.rank, snapshot.place.name
        told: dict[str, object]
        try:
            part = folder.part(self._where, name)
            told = {"name": name, "digest": files.write_shard(part, rank, snapshot.arrays)}
        except Exception as error:  # rank 0 waits for a word, whatever it is
            told = {"name": name, "failed": f"rank {rank}: {_brief(error)}"}
        if rank != 0:
            self._over.notify(0, NOTICE, json.dumps(told).encode()[:8000])
            return
        digests = self._digests(told)
        folder.check_held(self._where, self._holder)
        manifest = {"shards": digests, "state": snapshot.state.as_json()}
        folder.finish(self._where, name, manifest)
        place = snapshot.place
        self.latest = {
            "time": time.time(),
            "epoch": place.epoch + (not place.ended),
            "step": place.step,
            "seconds": round(time.monotonic() - begun, 3),
        }
        running = [old for old in folder.whole(self._where) if old.startswith("step-")]
        folder.remove(self._where, running[: -self._keep])

    def _digests(self, own: dict[str, object]) -> list[str]:
        """Of all shards; raises _NotWrittenError where a rank did not write its own."""
        told = {0: own}
        until = time.monotonic() + _ENOUGH_S
        while True:
            for failed in (word["failed"] for word in told.values() if "failed" in word):
                raise _NotWrittenError(failed)
            if len(told) == self._over.size:
                return [str(told[rank]["digest"]) for rank in range(self._over.size)]
            if self._leave.is_set() or self._over.failure or time.monotonic() > until:
                missing = sorted(set(range(self._over.size)) - set(told))
                raise _NotWrittenError(
                    f"rank(s) {missing} have not confirmed that they wrote their part"
                )
            for source, kind, payload in self._over.notices():
                if kind == NOTICE:
                    word = json.loads(payload)
                    if word["name"] == own["name"]:
                        told[source] = word
            self._leave.wait(_POLL_S)

    def _fail(self, place: Place, why: str) -> None:
        """Says it once: a disk that is full stays so for long."""
        if self._over.rank == 0:
            folder.give_up(self._where, place.name)
        if self._over.rank == 0 and not self._said and not self._leave.is_set():
            self._said = True
            print(
                f"A checkpoint ({place}) could not be written to {os.fspath(self._where)}, and "
                f"training goes on without: {why}"
            )


def _brief(error: BaseException) -> str:
    told = getattr(error, "strerror", None) or str(error)
    return told if isinstance(error, OSError) else f"{type(error).__name__}: {told}"


def owners(sizes: Sequence[int], holders: Sequence[Sequence[int]], ranks: int) -> list[int]:
    """Which rank writes each variable, of so many bytes: one that has it, so that all write about
    as much."""
    load, result = [0] * ranks, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        result[i] = min(holders[i], key=lambda rank: load[rank])
        load[result[i]] += sizes[i]
    return result
