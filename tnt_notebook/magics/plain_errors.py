"""Shows errors of ours as the sentence they are, without our own frames."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tnt_notebook.errors import TntError


def plainly(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a magic's errors show as one sentence; a rank's error shows the rank's traceback."""

    @functools.wraps(magic)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return magic(*arguments, **options)
        except TntError as error:
            if not hasattr(error, "_render_traceback_"):
                sentence = f"{type(error).__name__}: {error}"
                # IPython's protocol, looked up on the error itself.
                error._render_traceback_ = sentence.splitlines  # type: ignore[attr-defined]
            raise

    return run
