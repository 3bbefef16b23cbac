"""What to measure."""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024


@dataclass(frozen=True)
class Question:
    """What to measure.

    Attributes:
        max_bytes: of the largest vector; the smallest has 1 KB, and each the fourfold of the last.
        dtype: of its elements.
        algorithms: by name; none: all that fit the ranks.
        in_place: in a bucket, rather than from one array into another.
        rounds: how often each algorithm has its turn, at each size.
    """

    max_bytes: int = 16 << 20
    dtype: str = "float32"
    algorithms: tuple[str, ...] = ()
    in_place: bool = False
    rounds: int = 21

    @property
    def sizes(self) -> list[int]:
        """Bytes of the vectors."""
        sizes = [KB]
        while sizes[-1] * 4 <= self.max_bytes:
            sizes.append(sizes[-1] * 4)
        return sizes
