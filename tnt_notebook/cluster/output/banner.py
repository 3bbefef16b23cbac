"""What TensorFlow writes whenever it is loaded, and which tells a person nothing.

Its C++ code says on which instructions it was built, that oneDNN is on, that there is no CUDA, and
more of the kind: a dozen lines for each rank. Wherever output or logs of ranks are shown, these
lines are left out, and in the notebook's own output; the files of the logs have them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator

#: As its logger and absl's begin a line: severity, time, file and line of the source.
_LOGGED = r"(?:\d{4}-\d\d-\d\d [\d:.]+: [IWEF] |[IWEF]\d{4} [\d:.]+ +\d+ )\S+:\d+\] "
_MESSAGES = (
    r"This TensorFlow binary is optimized ",
    r"oneDNN custom operations are on\.",
    r"Could not find cuda drivers on your machine, GPU will not be used\.",
    r"Unable to register cu\w+ factory: Attempting to register factory for plugin cu\w+ when one",
    r"computation placer already registered\.",
    r"TF-TRT Warning: Could not find TensorRT",
    # Where GPUs are hidden from a rank, or the machine has none: asked for, or nothing to mend.
    r"failed call to cuInit: .*(?:CUDA_ERROR_NO_DEVICE|UNKNOWN ERROR \(303\))",
)
#: So much is enough to tell a line that may become one of these.
_BEGINS = re.compile(r"\d{4}-\d\d-\d\d |[IWEF]\d{4} |[IWEF\d-]{1,10}$|To enable |WARNING: All ")
_BANNER = re.compile(
    rf"{_LOGGED}(?:{'|'.join(_MESSAGES)})"
    r"|To enable the following instructions: .* rebuild TensorFlow with the appropriate compiler"
    r"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
)


def is_banner(line: str) -> bool:
    """Whether a line, without its end, is one of these."""
    return _BANNER.match(line) is not None


def without_banner(text: str) -> str:
    """A text without these lines; the ends of the others stay as they are."""
    if ".cc:" not in text and "TensorFlow" not in text and "absl::" not in text:
        return text
    return "".join(
        line for line in text.splitlines(keepends=True) if not is_banner(line.rstrip("\r\n"))
    )


class WithoutBanner:
    """Writes what comes in pieces, but for these lines: one that a piece may have cut waits for the
    next.

    Args:
        write: what it is written with.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self._cut = ""

    def __call__(self, piece: str) -> int:
        text = self._cut + piece
        whole = text.rfind("\n") + 1
        end = whole if _BEGINS.match(text[whole:]) else len(text)
        self._cut = text[end:]
        if shown := without_banner(text[:end]):
            self.write(shown)
        return len(piece)


@contextlib.contextmanager
def banner_left_out() -> Iterator[None]:
    """Inside, what this process writes to its standard error is held back, and shown without these
    lines at the end."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            shown = without_banner(held.read().decode(errors="replace"))
            os.write(2, shown.encode())
