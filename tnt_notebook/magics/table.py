"""The table of ``%tnt_cluster status``, and tables as text and HTML."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tnt_notebook.cluster import Links, RankStatus

_HEADERS = ("rank", "host", "node", "link", "pid", "cores", "GPU", "memory", "state")
_RIGHT = {"rank", "node", "pid", "memory"}


def status_table(rows: Sequence[RankStatus]) -> str:
    """Rows as aligned text."""
    cells = [
        (
            str(row.rank),
            row.host,
            str(row.node),
            row.link or "-",
            str(row.pid),
            _spans(row.cores),
            {None: "all", "-1": "none"}.get(row.gpu, row.gpu) or "none",
            "-" if row.memory is None else f"{row.memory / 2**20:.0f} MiB",
            row.state,
        )
        for row in rows
    ]
    return aligned(_HEADERS, cells, _RIGHT)


def links_line(links: Links, ranks: int) -> str:
    """How ranks reach each other, and why, in a sentence."""
    if ranks == 1:
        return "one rank has nobody to exchange with"
    lanes = "" if links.lanes == 1 else f", with {links.lanes} progress threads each"
    return f"ranks exchange by {links.by}{lanes}: {links.reason}"


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]) -> str:
    """Text in columns two spaces apart; those whose head is in ``right`` end at the same place."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if name in right else text.ljust(width)
            for name, text, width in zip(head, line, widths, strict=True)
        ).rstrip()
        for line in (head, *rows)
    )


def html(
    head: Sequence[str], rows: Sequence[Sequence[tuple[str, bool]]], left: Collection[str] = ()
) -> str:
    """A table for a browser, which gives it its own style; there, cells end at the same place.

    Args:
        rows: of each cell its text, and whether it is bold.
        left: heads of columns whose cells begin at the same place.
    """

    def cell(tag: str, name: str, text: str, bold: bool = False) -> str:
        side = ' style="text-align: left"' if name in left else ""
        inner = f"<b>{escape(text)}</b>" if bold else escape(text)
        return f"<{tag}{side}>{inner}</{tag}>"

    headings = "".join(cell("th", name, name) for name in head)
    body = "".join(
        "<tr>"
        + "".join(cell("td", name, *content) for name, content in zip(head, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"


def _spans(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
