"""Finds what Python cannot read in a cell for the ranks, here, before anything is sent."""

from __future__ import annotations

import ast
import keyword
import re
import warnings

from IPython.core.inputtransformer2 import TransformerManager

from tnt_notebook.errors import UnreadableError

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
#: How a line may begin that is no Python: IPython takes ``cd /tmp`` for ``%cd /tmp``, if it is the
#: only one and there is such a magic where it runs.
_MAYBE_MAGIC = re.compile(r"\s*([A-Za-z_]\w*)(?:[ \t]+[^\s=]|\s*$)")


def check_syntax(cell: str) -> None:
    """Reads a cell as IPython does on a rank: with ``!ls``, magics, and ``await``.

    Args:
        cell: without the line of its magic.

    Raises:
        UnreadableError: it cannot be read; it shows where, by the number that the line has in the
            whole cell.
    """
    # Line by line below each other, as in the whole cell: IPython leaves out empty ones before it.
    blank = re.match(r"(?:[ \t]*\n)*", cell)
    assert blank is not None
    above = "\n" * (1 + blank[0].count("\n"))
    try:
        # A fresh one, as a rank has it, whatever this notebook has added to its own.
        code = TransformerManager().transform_cell(cell)
        if not _may_be_magic(code):
            _compile(above + code)
    except SyntaxError as error:
        what = f"{type(error).__name__}: {error.msg}"
        raise UnreadableError(what, _place(error, ["", *cell.splitlines()])) from None
    except (ValueError, RecursionError, MemoryError):  # a null character, or nested without end
        return  # the ranks say it


def _may_be_magic(code: str) -> bool:
    word = _MAYBE_MAGIC.match(code)
    return len(code.splitlines()) == 1 and word is not None and not keyword.iskeyword(word[1])


def _compile(code: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the ranks tell them
        tree = compile(code, "<cell>", "exec", _FLAGS | ast.PyCF_ONLY_AST, dont_inherit=True)
        for statement in tree.body:  # one by one, as IPython runs them
            one = ast.Module([statement], type_ignores=[])
            compile(one, "<cell>", "exec", _FLAGS, dont_inherit=True)


def _place(error: SyntaxError, lines: list[str]) -> list[str]:
    """Where it is: the number of the line, the line, and a caret below it.

    Args:
        lines: of the whole cell.
    """
    if error.lineno is None:
        return []
    read = (error.text or "").rstrip("\n")
    begin = error.lineno - 1
    # IPython joins lines that a backslash continues: then it is further down.
    same = (i for i in range(begin, len(lines)) if lines[i].strip() == read.strip() != "")
    number = next(same, begin)
    if number >= len(lines):
        return []
    line = lines[number].strip()
    place = [f"line {number + 1} of the cell:", f"    {line}"]
    first = (error.offset or 0) - 1 - (len(read) - len(read.lstrip()))
    if read.strip() != line or not 0 <= first <= len(line):
        return place
    last = (error.end_offset or 0) - (error.offset or 0) if error.end_lineno == error.lineno else 1
    return [*place, " " * (4 + first) + "^" * max(1, last)]
