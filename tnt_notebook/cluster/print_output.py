"""Prints merged output in the notebook, each line with the ranks it is from."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from IPython.display import publish_display_data

from tnt_notebook.cluster.output import Group, ranks_label


def show(groups: Iterable[Group], labelled: bool) -> None:
    """Prints groups in order.

    Args:
        groups: what :class:`~tnt_notebook.cluster.output.Merger` gives.
        labelled: False where there is only one rank, whose output needs no label.
    """
    lines: list[str] = []
    stream = "stdout"
    for group in groups:
        kind, content = group.item.kind, group.item.content
        if kind in ("stdout", "stderr"):
            if kind != stream:
                _write(stream, lines)
                stream = kind
            lines.append(_labelled(group, content, labelled))
            continue
        _write(stream, lines)
        _show_rich(group, content, labelled)
    _write(stream, lines)


def _show_rich(group: Group, content: dict[str, Any], labelled: bool) -> None:
    data = content["data"]
    if not labelled:
        publish_display_data(data, content.get("metadata"))
    elif set(data) == {"text/plain"}:
        _write("stdout", [_labelled(group, data["text/plain"], labelled)])
    else:
        _write("stdout", [f"{ranks_label(group.ranks)}:"])
        publish_display_data(data, content.get("metadata"))


def _labelled(group: Group, text: str, labelled: bool) -> str:
    if not labelled:
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
