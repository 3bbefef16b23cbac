"""Which gradients travel together.

Backpropagation produces gradients from the last variable to the first, so buckets are filled in
that order, and a bucket is complete while the gradients of the next are still being computed:

    variables     0    1    2    3    4    5
    buckets      [  last  ] [      ] [first]      <- time of completion

The first bucket is small so that communication begins early. The last one is small because no
computation is left to hide it behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20
#: Of a bucket, as usual.
CAP_MB = 4


@dataclass(frozen=True)
class BucketSizes:
    """Caps, in bytes. A variable that is larger than a cap has a bucket of its own."""

    cap: int = CAP_MB * MIB
    first: int = MIB // 4
    last: int = MIB // 4

    @classmethod
    def of(cls, bucket_mb: float | None) -> BucketSizes:
        """With buckets of so many MiB; None: as usual."""
        return cls() if bucket_mb is None else cls(int(bucket_mb * MIB))


def buckets_of(
    sizes: Sequence[int], kinds: Sequence[str], caps: BucketSizes | None = None
) -> list[list[int]]:
    """Which variables are in which bucket.

    Args:
        sizes: bytes of each gradient, in the order of the variables.
        kinds: dtype of each gradient; a bucket holds one dtype.
        caps: see :class:`BucketSizes`.

    Returns:
        Buckets in the order in which they become ready, each a list of indices in that order;
        every index is in one bucket.
    """
    caps = caps or BucketSizes()
    buckets: list[list[int]] = []
    # The last bucket is what fits under its cap, seen from the first variable.
    tail: list[int] = []
    used = 0
    for index, size in enumerate(sizes):
        if used + size > caps.last or kinds[index] != kinds[0]:
            break
        tail.append(index)
        used += size
    filled = 0
    for index in reversed(range(len(tail), len(sizes))):
        cap = caps.first if len(buckets) <= 1 else caps.cap
        fits = buckets and filled + sizes[index] <= cap
        if fits and kinds[buckets[-1][0]] == kinds[index]:
            buckets[-1].append(index)
            filled += sizes[index]
        else:
            buckets.append([index])
            filled = sizes[index]
    if tail:
        buckets.append(tail[::-1])
    return buckets
