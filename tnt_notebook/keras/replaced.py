"""A function of Keras, another one in its place for a while."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Inside, ``function`` is called in place of ``owner.name`` (of a class, which may inherit it,
    or a module), with what that was as its first argument."""
    own, before = vars(owner).get(name), getattr(owner, name)

    @functools.wraps(before)
    def instead(*arguments: Any, **keywords: Any) -> Any:
        return function(before, *arguments, **keywords)

    setattr(owner, name, instead)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
