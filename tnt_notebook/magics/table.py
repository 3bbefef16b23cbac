"""The table of ``%tnt_cluster status``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tnt_notebook.cluster import RankStatus

_HEADERS = ("rank", "host", "pid", "cores", "GPU", "memory", "state")
_RIGHT = {"rank", "pid", "memory"}


def status_table(rows: Sequence[RankStatus]) -> str:
    """Rows as aligned text."""
    cells = [
        (
            str(row.rank),
            row.host,
            str(row.pid),
            _spans(row.cores),
            {None: "all", "-1": "none"}.get(row.gpu, row.gpu) or "none",
            "-" if row.memory is None else f"{row.memory / 2**20:.0f} MiB",
            row.state,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(_HEADERS, *cells, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if header in _RIGHT else text.ljust(width)
            for header, text, width in zip(_HEADERS, line, widths, strict=True)
        ).rstrip()
        for line in (_HEADERS, *cells)
    )


def _spans(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
