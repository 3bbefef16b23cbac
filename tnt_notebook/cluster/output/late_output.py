"""What ranks print after their cell has ended, as threads and tasks do: shown under that cell."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tnt_notebook.cluster.output.cell_output import SHOWN, CellOutput
from tnt_notebook.jupyter.client import Client, forget_text

CELLS = 32  # the last ones; what a thread prints is of the last one of its rank
_TICK_S = 0.1
_REST_S = 1.0  # of silence: then unfinished lines are shown

Message = tuple[int, str, Any]


class LateOutput:
    """Listens to requests that have been answered, and shows what comes in a thread of its own.

    Args:
        client: connected to the ranks.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cells: deque[dict[str, int]] = deque()
        self._heard: queue.SimpleQueue[tuple[CellOutput, Message] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def follow(
        self, requests: dict[str, int], output: CellOutput, before: Iterable[Message]
    ) -> None:
        """Listens to what still comes of a cell. To be called where messages are heard, in the
        client's IO thread.

        Args:
            requests: ranks by the ids of their messages.
            output: of the cell, from now on for no other thread.
            before: what has come since the last look.
        """
        for message in before:
            self._put(output, message)
        for request, rank in requests.items():
            self._client.hear(request, self._listener(request, rank, output))
        self._cells.append(requests)
        while len(self._cells) > CELLS:
            for request in self._cells.popleft():
                self._client.unhear(request)

    def stop(self) -> None:
        """Ends the thread."""
        self._heard.put(None)

    def _listener(
        self, request: str, rank: int, output: CellOutput
    ) -> Callable[[dict[str, Any]], None]:
        def listen(message: dict[str, Any]) -> None:
            forget_text(self._client.metadata[request])
            self._put(output, (rank, message["header"]["msg_type"], message["content"]))

        return listen

    def _put(self, output: CellOutput, message: Message) -> None:
        if message[1] not in SHOWN:
            return
        self._heard.put((output, message))
        if self._thread is None:
            self._thread = threading.Thread(target=self._show, name="tnt-late", daemon=True)
            self._thread.start()

    def _show(self) -> None:
        heard_at: dict[CellOutput, float] = {}
        while True:
            try:
                heard = self._heard.get(timeout=_TICK_S if heard_at else None)
                if heard is None:
                    return
                output, message = heard
                heard_at[output] = time.monotonic()
                output.take(*message, heard_at[output])
            except queue.Empty:
                pass
            now = time.monotonic()
            for output, at in list(heard_at.items()):
                rest = now - at > _REST_S
                output.show_late(now, rest)
                if rest:
                    del heard_at[output]
