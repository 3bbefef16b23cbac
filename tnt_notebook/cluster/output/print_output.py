"""Shows merged output in the notebook, each line with the ranks it is from."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import clear_output, publish_display_data

from tnt_notebook.cluster.output.merger import Group, ranks_label

_REMEMBERED = 1000  # displays that may be updated


class Page:
    """What has been shown of a cluster's ranks, in all its cells.

    Ranks that show the same share a display. Where one of them changes it to something else than
    the others do, it gets a display of its own.

    Args:
        labelled: False where there is only one rank, whose output needs no label.
    """

    def __init__(self, labelled: bool) -> None:
        self._labelled = labelled
        self._mark = secrets.token_hex(4)  # ids of displays are a cluster's own
        self._displays: dict[str, None] = {}

    def show(self, groups: Iterable[Group]) -> None:
        """Shows groups in order, as a :class:`~tnt_notebook.cluster.output.merger.Merger` gives."""
        lines: list[str] = []
        stream = "stdout"
        for group in groups:
            kind, content = group.item.kind, group.item.content
            if kind in ("stdout", "stderr"):
                if kind != stream:
                    _write(stream, lines)
                    stream = kind
                lines.append(self._label(group, content))
                continue
            _write(stream, lines)
            if kind == "clear":
                if get_ipython() is not None:  # a terminal keeps what was printed
                    clear_output(wait=content)
            elif group.item.display_id is None:
                self._show_rich(group, content)
            else:
                self._show_changing(group, content, update=kind == "update")
        _write(stream, lines)

    def _show_rich(self, group: Group, content: dict[str, Any]) -> None:
        data = content["data"]
        if not self._labelled:
            publish_display_data(data, content.get("metadata"))
        elif set(data) == {"text/plain"}:
            _write("stdout", [self._label(group, data["text/plain"])])
        else:
            _write("stdout", [f"{ranks_label(group.ranks)}:"])
            publish_display_data(data, content.get("metadata"))

    def _show_changing(self, group: Group, content: dict[str, Any], update: bool) -> None:
        """What has an id, by which it is changed later."""
        name = f"{self._mark} {ranks_label(group.ranks)} {group.item.display_id}"
        data = content["data"]
        if set(data) == {"text/plain"}:
            data = {"text/plain": self._label(group, data["text/plain"])}
        elif self._labelled and name not in self._displays:
            _write("stdout", [f"{ranks_label(group.ranks)}:"])
        update = update and name in self._displays
        publish_display_data(
            data, content.get("metadata"), transient={"display_id": name}, update=update
        )
        self._displays.setdefault(name)
        if len(self._displays) > _REMEMBERED:
            del self._displays[next(iter(self._displays))]

    def _label(self, group: Group, text: str) -> str:
        if not self._labelled:
            return text
        separator = "\n" if "\n" in text else " " if text else ""
        return f"{ranks_label(group.ranks)}:{separator}{text}"


def _write(stream: str, lines: list[str]) -> None:
    if lines:
        file = sys.stdout if stream == "stdout" else sys.stderr
        # Not by the stream's own attribute: in it IPython keeps all that a cell prints, for as long
        # as the kernel lives.
        type(file).write(file, "\n".join(lines) + "\n")
        file.flush()
        lines.clear()
