"""Colours of cells: Python, in which a line may be a magic or a command of the shell."""

from typing import Any, ClassVar

from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Operator, String, Text


class CellLexer(PythonLexer):
    """Below a cell magic, too: IPython's own lexer leaves that without colours."""

    name = "Python, as in a cell"
    aliases: ClassVar = ["cell"]
    tokens: ClassVar = {
        "root": [
            (r"^(%%?)(\w+)(.*?)(?=\s+#|$)", bygroups(Operator, Keyword, String)),
            (r"^(!)(.*)$", bygroups(Operator, Text)),
            inherit,
        ],
    }


def setup(app: Any) -> dict[str, bool]:
    """Makes it the lexer of Python in pages, docstrings and notebooks."""
    for name in ("default", "python", "ipython3"):
        app.add_lexer(name, CellLexer)
    return {"parallel_read_safe": True}
