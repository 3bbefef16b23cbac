"""The help of a magic as a part of a page: what ``%tnt_cluster?`` shows in a notebook.

In a page::

    ```{eval-rst}
    .. magic:: tnt_cluster
    ```

A magic that no page shows is a warning.
"""

import inspect
import pkgutil
from argparse import Action
from collections.abc import Callable
from importlib import import_module
from textwrap import dedent
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from tables import described, table

from tnt_notebook import magics

_log = logging.getLogger(__name__)

#: Magics that some page has shown; every page is read anew in a build.
_shown: set[str] = set()


def all_magics() -> dict[str, Callable[..., Any]]:
    """Those of the package, by name: functions that parse a line."""
    modules = [
        import_module(f"{magics.__name__}.{module.name}")
        for module in pkgutil.iter_modules(magics.__path__)
    ]
    return {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if hasattr(found, "parser") and found.__module__ == module.__name__
    }


class MagicHelp(SphinxDirective):
    """Description and options of a magic."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if (magic := all_magics().get(name)) is None:
            raise self.error(f"there is no magic {name!r}")
        _shown.add(name)
        parser = magic.parser  # type: ignore[attr-defined]
        summary, _, more = (parser.description or "").partition("\n")
        actions = [action for action in parser._actions if action.help]
        return [
            *self.parse_text_to_nodes(f"{summary}\n{dedent(more)}"),
            table(
                ("", "what it says"),
                [(f"`{_typed(a)}`", described(a.help, a.choices or ())) for a in actions],
            ),
        ]


def _typed(action: Action) -> str:
    """An argument as a person types it."""
    if not action.option_strings:
        return str(action.metavar or action.dest)
    flag = action.option_strings[-1]
    return flag if action.nargs == 0 else f"{flag} {action.metavar or action.dest[0].upper()}"


def _check(_: Sphinx, env: BuildEnvironment) -> None:
    for name, magic in all_magics().items():
        if name not in _shown:
            where = inspect.getsourcefile(inspect.unwrap(magic))
            _log.warning("no page has the help of the magic %s of %s", name, where)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("magic", MagicHelp)
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": False}
