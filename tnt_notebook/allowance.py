"""How much text is shown of much: so much at once, and then so much a second (a token bucket).

Of what is left out it is said how much it was, and its end is shown; the rank's log has it all::

    printed     ####################################################################
    shown       ##########  [1.2 MB are not shown here ...] ##  ####         [...] ##
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tnt_notebook.sizes import size

TEXT = 1 << 20  # characters of all ranks together: Jupyter itself drops more than 3 MB within 3 s
REFILL_S = 128.0  # until all of it may be shown again
REOPENS = 16  # at this part of it: rather now and then a piece than line by line
TAIL = 2000  # characters
LABEL = 12  # characters that the notebook puts before a line


class Allowance:
    """Of the text of one rank.

    Args:
        full: characters that may be shown at once.
        clock: seconds, of any origin.
    """

    def __init__(self, full: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bucket = Bucket(full, clock)
        self._gaps: dict[str, _Gap] = {}

    def begin(self) -> None:
        """All of it may be shown again."""
        self._bucket.fill()

    def shown(self, name: str, text: str) -> str:
        """What of a piece of text is shown now, and before it what is said of a gap that ends.

        Args:
            name: of the stream.
        """
        gap = self._gaps.pop(name, None)
        if gap is not None and self._bucket.left() < self._bucket.full / REOPENS:
            self._gaps[name] = gap.and_then(text)
            return ""
        shown = _beginning(text, self._bucket.left())
        self._bucket.take(_shown_length(shown))
        if shown != text:
            self._bucket.take(self._bucket.full)
            self._gaps[name] = _Gap().and_then(text[len(shown) :])
            shown += "" if shown.endswith("\n") else "\n"
        return (str(gap) if gap else "") + shown

    def left_out(self) -> dict[str, str]:
        """By stream, what is said at the end of what was left out."""
        gaps, self._gaps = self._gaps, {}
        return {name: str(gap) for name, gap in gaps.items()}


class Bucket:
    """How much may be shown: all of it at once, and then what comes back in time."""

    def __init__(self, full: int, clock: Callable[[], float]) -> None:
        self.full, self._clock = full, clock
        self.fill()

    def fill(self) -> None:
        self._left, self._at = float(self.full), self._clock()

    def left(self) -> int:
        now = self._clock()
        self._left = min(self.full, self._left + (now - self._at) * self.full / REFILL_S)
        self._at = now
        return int(self._left)

    def take(self, wanted: int) -> int:
        """How much of it may be shown."""
        taken = min(wanted, self.left())
        self._left -= taken
        return taken


@dataclass(frozen=True)
class _Gap:
    """Text that was not shown, by its end."""

    count: int = 0
    end: str = ""

    def and_then(self, text: str) -> _Gap:
        return _Gap(self.count + len(text), (self.end + text[-TAIL:])[-TAIL:])

    def __str__(self) -> str:
        end = self.end
        if self.count > len(end):  # it begins anywhere
            end = end[end.find("\n", 0, -1) + 1 :]
        if left_out := self.count - len(end):
            said = "the log of the rank has the end of it: %tnt_cluster logs"
            end = f"[{size(left_out)} are not shown here; {said}]\n{end}"
        return end


def _shown_length(text: str) -> int:
    return len(text) + LABEL * text.count("\n")


def _beginning(text: str, most: int) -> str:
    """As many of a text's lines as are shown in so many characters, or a little less; or of one
    that is too long its beginning."""
    whole = text
    while (length := _shown_length(text)) > most:
        text = text[: len(text) * most // length]
    return text if text == whole else text[: text.rfind("\n") + 1] or text
