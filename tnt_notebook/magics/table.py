"""Tables as text and for a browser, and the one of ``%tnt_cluster status``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tnt_notebook.cluster import Links, RankStatus

_HEADERS = ("rank", "host", "node", "link", "pid", "runs on", "GPU", "memory", "state")
_LEFT = {"host", "link", "runs on", "GPU", "state"}


@dataclass(frozen=True)
class Table:
    """Cells under heads.

    Attributes:
        left: heads of the columns whose cells begin at the same place; the others' end there.
        best: row and head of the cells that are marked, by a star.
        folded: what it is folded under in a browser; "": it is open.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[str] = ()
    best: Collection[tuple[int, str]] = ()
    folded: str = ""

    def text(self) -> str:
        """For a monospaced font: columns two spaces apart."""
        marks = dict.fromkeys((name for _, name in self.best), " ")
        lines = [self.head] + [
            [text + ("*" if (i, name) in self.best else marks.get(name, "")) for name, text in row]
            for i, row in enumerate(self._rows())
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                text.ljust(width) if name in self.left else text.rjust(width)
                for name, text, width in zip(self.head, line, widths, strict=True)
            ).rstrip()
            for line in lines
        )

    def html(self) -> str:
        """For a browser, which gives tables its own style: there, cells end at the same place."""

        def cell(tag: str, name: str, text: str, best: bool = False) -> str:
            side = ' style="text-align: left"' if name in self.left else ""
            inner = f"<b>{escape(text)}*</b>" if best else escape(text)
            return f"<{tag}{side}>{inner}</{tag}>"

        lines = [[cell("th", name, name) for name in self.head]] + [
            [cell("td", name, text, (i, name) in self.best) for name, text in row]
            for i, row in enumerate(self._rows())
        ]
        head, *body = [f"<tr>{''.join(cells)}</tr>" for cells in lines]
        table = f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"
        if not self.folded:
            return table
        return f"<details><summary>{escape(self.folded)}</summary>{table}</details>"

    def _rows(self) -> list[list[tuple[str, str]]]:
        """Of each cell its head and text."""
        return [list(zip(self.head, row, strict=True)) for row in self.rows]


class Bold(str):
    """A paragraph that a browser shows in bold."""


def bundle(*parts: str | Table) -> dict[str, str]:
    """Paragraphs and tables, for a monospaced font and for a browser."""
    texts, pages = [], []
    for part in parts:
        if isinstance(part, Table):
            texts.append(part.text())
            pages.append(part.html())
        else:
            texts.append(part)
            page = escape(part)
            pages.append(f"<p><b>{page}</b></p>" if isinstance(part, Bold) else f"<p>{page}</p>")
    return {"text/plain": "\n\n".join(texts), "text/html": "".join(pages)}


def below(shown: Mapping[str, str], line: str) -> dict[str, str]:
    """What :func:`bundle` gave, and a paragraph below it, if there is one to say."""
    under = bundle(line)
    between = {"text/plain": "\n\n", "text/html": ""}
    return {m: f"{s}{between[m]}{under[m]}" if line else s for m, s in shown.items()}


def status_table(rows: Sequence[RankStatus]) -> str:
    """Rows as aligned text."""
    cells = [
        (
            str(row.rank),
            row.host,
            str(row.node),
            row.link or "-",
            str(row.pid),
            _cores(row, rows),
            _gpus(row.gpu, row.gpus),
            "-" if row.memory is None else f"{row.memory / 2**20:.0f} MiB",
            row.state,
        )
        for row in rows
    ]
    return Table(_HEADERS, cells, _LEFT).text()


def links_line(links: Links, ranks: int) -> str:
    """How ranks reach each other, and why, in a sentence."""
    if ranks == 1:
        return "a single rank has no peer to exchange with"
    lanes = "" if links.lanes == 1 else f", with {links.lanes} progress threads each"
    return f"ranks exchange by {links.by}{lanes}: {links.reason}"


def _cores(row: RankStatus, rows: Sequence[RankStatus]) -> str:
    """Numbers of cores, and whether the rank has them for itself."""
    named = f"core{'s' * (len(row.cores) > 1)} {_spans(row.cores)}"
    living = [one for one in rows if one.host == row.host and one.state != "dead"]
    shared = any({*row.cores} & {*one.cores} for one in living if one.rank != row.rank)
    return named + ", shared" * (shared and row in living)


def _gpus(visible: str | None, count: int | None) -> str:
    """What a rank sees of the GPUs of its host.

    Args:
        visible: its CUDA_VISIBLE_DEVICES.
        count: of the host; None: not known.
    """
    if count == 0 or visible in ("", "-1"):
        return "none"
    if visible is None:
        return {None: "all", 1: "GPU 0"}.get(count, f"all {count}")
    return f"GPU{'s' * (',' in visible)} {visible}"


def _spans(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
