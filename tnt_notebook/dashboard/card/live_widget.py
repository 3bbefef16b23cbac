"""What all live views share: how they hear of the browser, and what they leave when they end."""

from __future__ import annotations

from typing import Any, ClassVar

import anywidget
import traitlets

from tnt_notebook.jupyter.notebook import answer_in_named_subshell


class LiveWidget(anywidget.AnyWidget):
    """A view that is live while something runs, and then makes room for a still.

    Attributes:
        emptied: traits that nobody needs when it has ended, with what is left of them.
    """

    emptied: ClassVar[dict[str, Any]] = {}

    left: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """What stays at the end, for a browser that lost the displays to a refresh; see
    ``widgets/leave.js``."""

    def open(self) -> None:
        """Connects the view with the browser, whose buttons work while a cell blocks the kernel."""
        super().open()
        answer_in_named_subshell(self.comm)

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
