"""Cells that Python cannot read are found in the notebook; what IPython reads is let through."""

import pytest

from tnt_notebook.errors import UnreadableError
from tnt_notebook.magics.syntax import check_syntax


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "x = 1\n!ls {x}\nfiles = !ls\n%time z = 2\n",
        "await f()\nasync with a as b:\n    pass\n[i async for i in f()]",
        "%%time\nwhat the magic makes of this is its own affair",
        "cd /tmp",  # for %cd, where there is one
        "pwd\n",
        "x?",
        ">>> x = 1",
        "/f x\n",
        "  x = 1\n  y = 2\n",
        "x = 1\nglobal x\n",  # one by one, as a rank runs them
        "x = 1\nfrom __future__ import annotations",
        "import re\nre.compile('\\d')\n",  # a warning: the ranks give it
    ],
)
def test_what_ipython_reads_passes(cell):
    check_syntax(cell)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (
            "x = 1\nmodel.fit(x, y",
            ["line 3 of the cell:", "    model.fit(x, y", "             ^",
             "SyntaxError: '(' was never closed"],
        ),
        (
            "\n\n!ls\nfor i in x:\nprint(i)",
            ["line 6 of the cell:", "    print(i)", "    ^^^^^",
             "IndentationError: expected an indented block after 'for' statement on line 5"],
        ),
        (
            "!echo a \\\n b\nx = )",  # which IPython makes one line of
            ["line 4 of the cell:", "    x = )", "        ^", "SyntaxError: unmatched ')'"],
        ),
        (
            "    x = 1\n    y = = 2",
            ["line 3 of the cell:", "    y = = 2", "        ^", "SyntaxError: invalid syntax"],
        ),
        (
            "x = 1\nreturn x",
            ["line 3 of the cell:", "    return x", "SyntaxError: 'return' outside function"],
        ),
        (
            "def f():\n    await g()\n",
            ["line 3 of the cell:", "    await g()", "SyntaxError: 'await' outside async function"],
        ),
        (
            "import foo bar",
            ["line 2 of the cell:", "    import foo bar", "               ^^^",
             "SyntaxError: invalid syntax"],
        ),
    ],
)  # fmt: skip
def test_what_it_cannot_read_is_shown_with_its_line_in_the_cell(cell, shown):
    with pytest.raises(UnreadableError) as raised:
        check_syntax(cell)
    *place, what = shown
    assert raised.value._render_traceback_() == [*place, f"{what} (nothing was sent to the ranks)"]
