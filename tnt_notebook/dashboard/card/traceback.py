"""The traceback of ranks that failed, as it is kept: folded in a browser, plain text elsewhere."""

from __future__ import annotations

from html import escape

#: Characters that are kept: the card holds it several times.
MOST = 12_000


def shortened(traceback: str) -> str:
    """Without the middle of a very long one."""
    if len(traceback) <= MOST:
        return traceback
    return f"{traceback[: MOST // 2]}\n[...]\n{traceback[-MOST // 2 :]}"


def folded(traceback: str) -> str:
    """In HTML, as ``widgets/parts.js`` has it; of none nothing."""
    if not traceback:
        return ""
    head = "<summary>Traceback</summary>"
    return f'<details class="tnt-traceback">{head}<pre>{escape(traceback)}</pre></details>'
