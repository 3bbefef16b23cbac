"""Tables that the code has already: options of a cluster, exchanges, schedules, meters, others.

In a page::

    ```{table-of} cluster-options
    ```
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from tnt_notebook.choices import EXCHANGES, TRACKERS
from tnt_notebook.cluster.launch.options import OPTIONS, Option
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.telemetry.activities import DOING
from tnt_notebook.telemetry.meters import METERS


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> nodes.table:
    """Rows of texts, in which what stands between backticks is code."""
    group = nodes.tgroup("", cols=len(head))
    group += [nodes.colspec("", colwidth=1) for _ in head]
    group += nodes.thead("", _row(head))
    group += nodes.tbody("", *map(_row, rows))
    return nodes.table("", group)


def _row(texts: Sequence[str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", _paragraph(text)) for text in texts))


def _paragraph(text: str) -> nodes.paragraph:
    parts = enumerate(text.split("`"))
    return nodes.paragraph(
        "", "", *(nodes.literal(part, part) if i % 2 else nodes.Text(part) for i, part in parts)
    )


def cluster_options() -> nodes.table:
    """How each option of a cluster is typed, what it says, and its name in a site's file."""
    head = ("option", "what it says", "in a site's file")
    dry_run = ("`--dry-run`", "shows the script or command, starts nothing", "")
    return table(head, [*map(_option, OPTIONS.values()), dry_run])


def _option(option: Option) -> tuple[str, str, str]:
    typed = f"`{option.flag} {option.metavar or option.name[0].upper()}`" if option.typed else ""
    default = "" if option.default in (None, (), {}, 1) else f" = {option.default!r}"
    text = described(option.help, option.choices)
    return typed, text, f"`{option.name}{default}`" if option.site else ""


def described(text: str, choices: Iterable[object]) -> str:
    """What an option says, and the values that it takes."""
    text = re.sub(r'("[^"]+")', r"`\1`", text)
    return ": ".join(filter(None, [text, ", ".join(f"`{choice}`" for choice in choices)]))


def schedules() -> nodes.table:
    """How each schedule works, how long its ranks are idle, and what they hold."""
    head = ("schedule", "", "a rank is idle for", "it holds at most")
    rows = []
    for family in FAMILIES.values():
        idle = family.idle_formula.replace(" ", "\N{NO-BREAK SPACE}")
        rows.append((f"`{family.name}`", family.description, idle, family.held_formula))
    return table(head, rows)


def exchanges() -> nodes.table:
    """What each exchange does, and its options."""
    head = ("exchange", "what it does", "options")
    rows = []
    for name, (words, options) in EXCHANGES.items():
        said = "; ".join(f"`{option}`: {meaning}" for option, meaning in options.items())
        rows.append((f"`{name}`", words, said))
    return table(head, rows)


def activities() -> nodes.table:
    """What the run's drawing calls what a rank does, and what that is."""
    return table(("", "what it is"), [(doing.words, doing.meaning) for doing in DOING.values()])


def trackers() -> nodes.table:
    """Where each tracker keeps runs, and what has to be installed."""
    head = ("tracker", "without a folder, it writes", "needs")
    rows = [
        (f"`{name}`", where, f"`pip install {what}`") for name, (where, what) in TRACKERS.items()
    ]
    return table(head, rows)


def meters() -> nodes.table:
    """What ranks measure."""
    rows = [(m.label, m.meaning, m.unit, f"`{m.name}`") for m in METERS.values()]
    return table(("", "what it is", "in", "column"), rows)


_TABLES: dict[str, Callable[[], nodes.table]] = {
    "activities": activities,
    "cluster-options": cluster_options,
    "exchanges": exchanges,
    "meters": meters,
    "schedules": schedules,
    "trackers": trackers,
}


class TableOf(SphinxDirective):
    """One of the tables above, by its name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in _TABLES:
            raise self.error(f"there is no table {name!r}: it is one of {', '.join(_TABLES)}")
        return [_TABLES[name]()]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("table-of", TableOf)
    return {"parallel_read_safe": True}
