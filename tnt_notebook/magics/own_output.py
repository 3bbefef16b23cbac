"""What the notebook's own TensorFlow writes, where a cell loads it: without its banner."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tnt_notebook.cluster.output.banner import WithoutBanner

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def leave_banner_out(shell: InteractiveShell) -> None:
    """From now on, in a kernel: its stream takes in what C++ writes, too."""
    if getattr(shell, "kernel", None) is not None:
        _filter()
        shell.events.register("pre_run_cell", _filter)


def show_banner(shell: InteractiveShell) -> None:
    """Ends it."""
    if getattr(shell, "kernel", None) is not None:
        shell.events.unregister("pre_run_cell", _filter)
        if isinstance(sys.stderr.write, WithoutBanner):
            sys.stderr.write = sys.stderr.write.write  # type: ignore[method-assign]


def _filter(_: object = None) -> None:
    """Of one cell: IPython has set `write` before it, and sets it back behind it."""
    if not isinstance(sys.stderr.write, WithoutBanner):
        sys.stderr.write = WithoutBanner(sys.stderr.write)  # type: ignore[method-assign]
