"""Who does how much of the work of input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """Whether a rank reads and maps samples of its own only.

    Attributes:
        why: what makes every rank do the work of all; empty where each does its own.
    """

    why: str = ""

    @property
    def own(self) -> bool:
        return not self.why

    def __str__(self) -> str:
        """What the view says of it: nothing where each rank does its own part."""
        return f"every rank maps all: {self.why}" if self.why else ""
