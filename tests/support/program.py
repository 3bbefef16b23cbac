"""A program in Python that a test talks to, and that does not outlive it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.rank_pool import ROOT


@contextmanager
def program(source: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Runs it, with pipes for its input and its output.

    Args:
        arguments: of the program.
        options: of `subprocess.Popen`, beside those that it is run with here.
    """
    with subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
