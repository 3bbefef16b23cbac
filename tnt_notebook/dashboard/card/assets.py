"""Finds the browser side, and joins its modules into the one that a widget may have.

anywidget loads a single ES module from its text, where a relative import has nothing to resolve
against. So the modules of ``widgets/`` are joined when the package is loaded: each after those it
imports, without its import and export words; tables in JSON, which live in the package, become
constants. They stay plain modules for Node, which tests them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.-]+)";\n', re.MULTILINE)
_TABLE = re.compile(
    r'^import (\w+) from "\.\./tnt_notebook/([\w./]+\.json)" with \{ type: "json" \};$',
    re.MULTILINE,
)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_TOP_LEVEL_NAME = re.compile(r"^(?:function|const|let|class) (\w+)", re.MULTILINE)


def folder() -> Path:
    """Where the browser side lies: in an installed package, or in a checkout."""
    installed = _PACKAGE / "_widgets"
    return installed if installed.is_dir() else _PACKAGE.parent / "widgets"


def text(name: str, where: Path | None = None) -> str:
    """The text of a file of the browser side, or of the folder `where`."""
    return ((where or folder()) / name).read_text(encoding="utf-8")


def module(name: str, where: Path | None = None) -> str:
    """An ES module with the modules it imports joined in front of it.

    Args:
        name: A file of the browser side.
        where: Another folder to look in.

    Raises:
        ValueError: Two modules give the same name to something at their top level.
    """
    parts = [text(part, where) for part in _in_order(name, where, [])]
    joined = "\n".join(_EXPORT.sub("", _IMPORT.sub("", part)) for part in parts)
    joined = _TABLE.sub(_table, joined)
    twice = [word for word, n in Counter(_TOP_LEVEL_NAME.findall(joined)).items() if n > 1]
    if twice:
        raise ValueError(f"Several modules that {name} imports define {', '.join(twice)}.")
    return joined


def _in_order(name: str, where: Path | None, seen: list[str]) -> list[str]:
    for imported in _IMPORT.findall(text(name, where)):
        if imported not in seen:
            _in_order(imported, where, seen)
    seen.append(name)
    return seen


def _table(found: re.Match[str]) -> str:
    """A table of the package as a constant."""
    table = text(found[2], _PACKAGE)
    return f"const {found[1]} = {table.rstrip()};"
