"""Lines of a cell count on the ranks as they do in the notebook, where its magic is line 1."""

from __future__ import annotations


def numbered(magic: str, cell: str) -> str:
    """The cell, with a comment in the place of its magic.

    IPython gives a magic only what is below it, and leaves out lines that are empty at the begin.
    """
    first = next((line for line in cell.splitlines() if line.strip()), "")
    if first.startswith("%%"):
        return cell  # another magic, which has to be first
    indent = first[: len(first) - len(first.lstrip())]  # that of the first line goes from all
    return f"{indent}# {magic}\n{cell}"
