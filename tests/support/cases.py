"""Which cases of a large table are tested: a few of each kind, or all with ``TNT_THOROUGH=1``."""

import itertools
import os
from collections.abc import Collection, Iterator
from typing import Any

#: Set by ``make test-all``: before a release everything runs.
THOROUGH = os.environ.get("TNT_THOROUGH") == "1"


def latin(*tables: Collection[Any], times: int = 1) -> list[tuple[Any, ...]]:
    """Rows of a Latin rectangle: each value of the first table ``times`` times, beside those of
    the other tables in turn. With ``TNT_THOROUGH=1`` the whole cross product.
    """
    if THOROUGH:
        return list(itertools.product(*tables))
    first, *others = map(list, tables)

    def beside(row: int, turn: int) -> Iterator[Any]:
        for i, other in enumerate(others):
            yield other[(row * (i + 1) + row // len(other) + turn) % len(other)]

    return [(value, *beside(row, turn)) for turn in range(times) for row, value in enumerate(first)]
