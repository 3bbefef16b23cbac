"""Numbers of which shapes are made, followed one by one.

Of a shape (batch, 10, 16) the 16 is a number, the same on all ranks; batch * 160 is one that has
the samples in it; and batch * 160 / batch is 160 again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Count:
    """A product: of a number, of sizes that only a run tells, and of the number of samples.

    Attributes:
        factor: the number.
        of: names of the sizes, sorted; they are the same on all ranks.
        rows: how often it has the number of samples as a factor.
        before: of a dimension as a shape gives it, the part of the product that counts blocks of
            samples; None: not known any more.
    """

    factor: int = 1
    of: tuple[str, ...] = ()
    rows: int = 0
    before: Count | None = None

    @property
    def is_number(self) -> bool:
        return not self.of and not self.rows

    @property
    def bare(self) -> Count:
        """Without what is known of its blocks."""
        return replace(self, before=None)

    def times(self, other: Count) -> Count:
        if other == ONE:
            return self
        if self == ONE:
            return other
        of = tuple(sorted(self.of + other.of))
        return Count(self.factor * other.factor, of, self.rows + other.rows)

    def over(self, other: Count) -> Count | None:
        """Their quotient; None where it is no such product."""
        left, right = Counter(self.of), Counter(other.of)
        if other.factor == 0 or self.factor % other.factor or right - left:
            return None
        if self.rows < other.rows:
            return None
        of = tuple(sorted((left - right).elements()))
        return Count(self.factor // other.factor, of, self.rows - other.rows)

    def plus(self, other: Count, sign: int = 1) -> Count | None:
        """Their sum, or difference; None where it is no such product."""
        if (self.of, self.rows) == (other.of, other.rows):
            factor = self.factor + sign * other.factor
            return Count(factor, self.of, self.rows) if factor else ZERO
        if other.factor == 0:
            return self.bare
        return other.bare if self.factor == 0 and sign == 1 else None


ONE, ZERO = Count(), Count(0)


def number(value: int) -> Count:
    return Count(int(value))


def product(counts: Iterable[Count | None]) -> Count | None:
    """Of several; None where one is not known."""
    result = ONE
    for count in counts:
        if count is None:
            return None
        result = result.times(count)
    return result.bare


def numbers(counts: Iterable[Count | None]) -> list[int] | None:
    """As Python's numbers; None where one has samples or a size in it."""
    listed = list(counts)
    if any(count is None or not count.is_number for count in listed):
        return None
    return [count.factor for count in listed if count is not None]


def is_one(count: Count | None) -> bool:
    return count is not None and count.is_number and math.prod([count.factor]) == 1
