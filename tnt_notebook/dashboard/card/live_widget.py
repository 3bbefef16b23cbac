"""What all live views share: how they hear of the browser, and what they leave when they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, ClassVar

import anywidget
import traitlets
from IPython.display import DisplayHandle

from tnt_notebook.jupyter.notebook import answer_in_named_subshell

DRAWN_S = 5.0  # until a browser that can draw a view has done so


class LiveWidget(anywidget.AnyWidget):
    """A view that is live while something runs, and then makes room for a still.

    Attributes:
        emptied: traits that nobody needs when it has ended, with what is left of them.
    """

    emptied: ClassVar[dict[str, Any]] = {}

    left: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """What stays at the end, for a browser that lost the displays to a refresh; see
    ``widgets/leave.js``."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._made_at = time.monotonic()
        self._is_drawn = False
        self._meanwhile = ""  # what stands in the place of the figure, as text
        self.on_msg(self._hear)

    def _hear(self, _: object, said: dict[str, Any], buffers: object) -> None:
        self._is_drawn = self._is_drawn or bool(said.get("drawn"))

    def open(self) -> None:
        """Connects the view with the browser, whose buttons work while a cell blocks the kernel."""
        super().open()
        answer_in_named_subshell(self.comm)

    def tell_meanwhile(
        self, places: Sequence[DisplayHandle], placeholder: dict[str, Any], text: Callable[[], str]
    ) -> None:
        """While no browser has drawn the view, as where anywidget is not installed, says in the
        place of the figure how far it is.

        Args:
            places: where the view is displayed, and where the figure will be.
            placeholder: what is there otherwise.
        """
        if len(places) < 2 or time.monotonic() < self._made_at + DRAWN_S:
            return
        said = "" if self._is_drawn else text()
        if said != self._meanwhile:
            self._meanwhile = said
            html = {"text/plain": said, "text/html": f"<pre>{escape(said)}</pre>"}
            places[1].update(html if said else placeholder, raw=True)

    def leave(self, placeholder: str, summary: dict[str, Any], figure: dict[str, Any]) -> None:
        """Has two MIME bundles take the places of the view and of the placeholder, which its text
        tells, wherever the kernel's own updates cannot.
        """
        left = {"placeholder": placeholder, "summary": summary, "figure": figure}
        self.left = {"model_id": self.model_id, **left}
        # Nobody shows the view where a notebook is run without a browser, and yet its state would
        # be kept there: nbclient, and so nbconvert, takes "state" of any message for news of it. A
        # browser passes over that of a custom message.
        gone = {"_esm": "export default {}", "_css": "", "left": {}, **self.emptied}
        if self.comm is not None:
            self.comm.send({"method": "custom", "content": None, "state": gone})
