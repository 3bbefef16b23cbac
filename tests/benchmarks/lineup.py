"""The jobs of all contestants; who does not start, or fails, is left out, and named."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from tests.benchmarks.job import Job, JobError
from tests.benchmarks.rounds import rotating, tell

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Lineup:
    """Starts the jobs, and ends them at the end of a ``with`` block.

    Args:
        names: of the contestants.
        start: starts the job of one.

    Attributes:
        notes: what those who take part said of themselves, and who is left out, and why.
    """

    def __init__(self, names: Iterable[str], start: Callable[[str], Job]) -> None:
        self.notes: list[str] = []
        self._jobs: dict[str, Job] = {}
        try:
            for name in names:
                try:
                    self._jobs[name] = start(name)
                    self._note(f"{name}: {self._jobs[name].about}")
                except (FileNotFoundError, JobError) as problem:
                    self._note(f"LEFT OUT: {name}: {problem}")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Lineup:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs.values():
            job.stop()

    def rounds(
        self,
        turns: Mapping[K, tuple[str, dict[str, Any]]],
        of_all: Callable[[list[Any]], T],
        rounds: int,
        seconds: float,
    ) -> dict[K, list[T]]:
        """What was measured in interleaved rounds, of those who took part to the end.

        Args:
            turns: of each, whose job is asked for what.
            of_all: makes one result of the answers of all ranks.
            rounds, seconds: as of `rotating`.

        Raises:
            JobError: nobody takes part.
        """
        if not self._jobs:
            raise JobError("there is nobody to measure: " + "; ".join(self.notes))

        def turn(name: str, request: dict[str, Any]) -> T | None:
            try:
                return of_all(self._jobs[name].ask(**request)) if name in self._jobs else None
            except JobError as problem:
                del self._jobs[name]
                self._note(f"LEFT OUT: {name}: failed when asked for {request}: {problem}")
                return None

        taken = {key: partial(turn, *how) for key, how in turns.items() if how[0] in self._jobs}
        found = rotating(taken, rounds, seconds)
        return {key: [r for r in f if r is not None] for key, f in found.items() if None not in f}

    def _note(self, note: str) -> None:
        self.notes.append(note)
        tell(note)
