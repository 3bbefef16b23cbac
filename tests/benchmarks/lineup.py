"""The jobs of all contestants; who does not start, or fails, is left out, and named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.job import Job, JobError
from tests.benchmarks.rounds import tell


class Lineup:
    """Starts the jobs, and ends them at the end of a ``with`` block.

    Args:
        starters: for each name what starts its job.

    Attributes:
        about: what those who take part said of themselves.
        left_out: who does not take part, or not to the end, and why.
    """

    def __init__(self, starters: Mapping[str, Callable[[], Job]]) -> None:
        self.about: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}
        for name, start in starters.items():
            try:
                self._jobs[name] = start()
            except (FileNotFoundError, JobError) as problem:
                self._leave_out(name, str(problem))
            except BaseException:
                self.__exit__()
                raise
            else:
                self.about[name] = self._jobs[name].about
                tell(f"{name}: {self.about[name]}")

    def __enter__(self) -> Lineup:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs.values():
            job.stop()
        self._jobs.clear()

    def __iter__(self) -> Any:
        """The names of those who take part."""
        return iter(tuple(self._jobs))

    def ask(self, name: str, **request: Any) -> list[Any] | None:
        """What each rank of a contestant answers; ``None`` if it takes part no more."""
        if name not in self._jobs:
            return None
        try:
            return self._jobs[name].ask(**request)
        except JobError as problem:
            del self._jobs[name]
            self._leave_out(name, f"failed when asked for {request}: {problem}")
            return None

    def notes(self) -> list[str]:
        """Who took part and who did not, for print."""
        present = [f"{name}: {about}" for name, about in self.about.items()]
        return present + [f"LEFT OUT: {name}: {why}" for name, why in self.left_out.items()]

    def _leave_out(self, name: str, why: str) -> None:
        self.left_out[name] = why
        tell(f"{name} is left out: {why}")
