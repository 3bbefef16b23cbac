"""Warns of public names that the reference leaves out, or shows without a docstring.

Public is what stands in the ``__all__`` of the packages below, and every class of error.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

PACKAGES = (
    "tnt_notebook", "tnt_notebook.cluster", "tnt_notebook.comm", "tnt_notebook.keras",
    "tnt_notebook.parallel.exchange", "tnt_notebook.parallel.ops", "tnt_notebook.plan",
)  # fmt: skip
ERRORS = "tnt_notebook.errors"

_log = logging.getLogger(__name__)


def public_names() -> Iterator[tuple[str, str]]:
    """Of each public thing the name by which it is exported, and that of where it is made."""
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            exported, thing = f"{package}.{name}", getattr(module, name)
            yield exported, _home(thing) or exported
    for name, thing in vars(import_module(ERRORS)).items():
        if inspect.isclass(thing) and issubclass(thing, Exception):
            yield f"{ERRORS}.{name}", _home(thing)


def _home(thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return thing.__name__
    is_named = inspect.isclass(thing) or inspect.isfunction(thing)
    return f"{thing.__module__}.{thing.__qualname__}" if is_named else ""


def _check(_: Sphinx, env: BuildEnvironment) -> None:
    documented = env.domains.python_domain.objects
    names = list(public_names())
    homes = {home for exported, home in names if exported in documented}
    for exported, home in names:
        if home not in homes and home not in documented:
            _log.warning("the reference leaves out %s, which is public", exported)


def _warn_of_silence(
    _: Sphinx, what: str, name: str, thing: Any, __: Any, lines: list[str]
) -> None:
    if not any(line.strip() for line in lines):
        _log.warning("%s %s is in the reference and has no docstring", what, name)
    for member, found in vars(thing).items() if what in ("class", "exception") else ():
        is_code = inspect.isfunction(found) or isinstance(found, property | classmethod)
        is_code = is_code and member not in getattr(thing, "__dataclass_fields__", ())
        if is_code and not member.startswith("_") and not inspect.getdoc(getattr(thing, member)):
            _log.warning("%s.%s is in the reference and has no docstring", name, member)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _warn_of_silence, priority=900)
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": True}
