"""How the reference looks: no arguments of classes that nobody makes by hand, and dashes."""

from typing import Any

from docutils import nodes

#: Made by other calls, which their docstrings name.
NOT_MADE_BY_HAND = {
    "tnt_notebook.cluster.Fit",
    "tnt_notebook.comm.Bucket",
    "tnt_notebook.comm.Communicator",
    "tnt_notebook.comm.Group",
}


def _without_arguments(_: Any, __: str, name: str, *rest: Any) -> tuple[str, None] | None:
    return ("", None) if name in NOT_MADE_BY_HAND else None


def _dashes(_: Any, page: nodes.document) -> None:
    """Sphinx writes ``name -- what it is`` and leaves the dash to smart quotes, which are off."""
    for text in list(page.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-signature", _without_arguments)
    app.connect("doctree-read", _dashes)
    return {"parallel_read_safe": True}
