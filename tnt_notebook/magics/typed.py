"""What comes before and after every magic: its line is parsed, and its errors are sentences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from IPython.core.magic import Magics

from tnt_notebook.errors import TntError


def typed(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a magic its line as parsed arguments, and shows its errors as one sentence, without our
    own frames; a rank's error shows the rank's traceback.
    """

    @functools.wraps(magic)
    def run(self: Magics, line: str, *cell: str) -> Any:
        try:
            return magic(self, magic.parser.parse_argstring(line), *cell)  # type: ignore[attr-defined]
        except TntError as error:
            if not hasattr(error, "_render_traceback_"):
                sentence = f"{type(error).__name__}: {error}"
                # IPython's protocol, looked up on the error itself.
                error._render_traceback_ = sentence.splitlines  # type: ignore[attr-defined]
            raise

    return run
