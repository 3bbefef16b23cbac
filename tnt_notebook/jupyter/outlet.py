"""What a rank publishes is bounded: cells print gigabytes, and browsers show megabytes.

See :mod:`tnt_notebook.allowance` for text. Displays and errors that are too large say so.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from tnt_notebook.allowance import TAIL, TEXT, Allowance, Bucket
from tnt_notebook.sizes import size

DISPLAYS = 1 << 24  # characters of figures and the like, of all ranks together
LEAST = 16  # of many ranks each shows a part of it, but no less than this part
ERROR = 20_000  # characters of a piece of a traceback


class Outlet:
    """Stands before the session of a rank's kernel, and bounds what that sends.

    Args:
        session: its ``send`` is replaced.
        ranks: of the world.
        clock: seconds, of any origin.
    """

    def __init__(
        self, session: Any, ranks: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._session, self._send = session, session.send
        part = min(ranks, LEAST)
        self._text = Allowance(TEXT // part, clock)
        self._displays = Bucket(DISPLAYS // part, clock)
        self._lock = threading.Lock()
        session.send = self.send

    def begin(self) -> None:
        """A request begins, and may show as much as any."""
        with self._lock:
            self._text.begin()
            self._displays.fill()

    def end(self, stream: Any, **how: Any) -> None:
        """A request ends: says what of it has not been shown.

        Args:
            stream: where to send it.
            how: as ``session.send`` has it.
        """
        with self._lock:
            left_out = self._text.left_out()
        for name, text in left_out.items():
            self._send(stream, "stream", {"name": name, "text": text}, **how)

    def send(self, stream: Any, message: Any, *said: Any, **how: Any) -> Any:
        """What ``session.send`` is."""
        if message == "error":
            return None  # the reply has it, too
        if isinstance(message, dict):
            kind, content = message["header"]["msg_type"], message["content"]
            with self._lock:
                if kind == "stream":
                    content["text"] = self._text.shown(content["name"], content["text"])
                elif kind in ("display_data", "update_display_data", "execute_result"):
                    content["data"] = self._displayed(content["data"])
            if kind == "stream" and not content["text"]:
                return None
        return self._send(stream, message, *said, **how)

    def _displayed(self, data: dict[str, Any]) -> dict[str, Any]:
        """A display, or what is said of it where it is too large."""
        found = {kind: _length(value) for kind, value in data.items()}
        if (total := sum(found.values())) <= self._displays.left():
            self._displays.take(total)
            return data
        kind = max(found, key=found.__getitem__)
        plain = str(data.get("text/plain", ""))[:TAIL]
        return {"text/plain": f"{plain}\n[{kind} of {size(found[kind])} is not shown here]".strip()}


def shortened(text: str) -> str:
    """A piece of a traceback, or the text of an error, without the middle of a very long one."""
    if len(text) <= ERROR:
        return text
    return f"{text[: ERROR // 2]} [...{size(len(text) - ERROR)}...] {text[-ERROR // 2 :]}"


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))
