"""The life of the live view: shown at once, updated while the run goes, left behind when it ends.

::

    while it runs            when it is over, and in the saved notebook
    +-------------------+    +-------------------+
    | card (widget)     |    | summary           |
    +-------------------+    +-------------------+
    | placeholder       |    | figure (plotly)   |
    +-------------------+    +-------------------+

A widget cannot be drawn without its kernel: a saved notebook would say "model not found". So the
card is replaced by a picture of itself, and the placeholder by a figure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from tnt_notebook.dashboard import saved
from tnt_notebook.dashboard.card import Card
from tnt_notebook.dashboard.pace import Paced
from tnt_notebook.dashboard.traceback import shortened
from tnt_notebook.telemetry import Frame, Row, State
from tnt_notebook.telemetry.bounds import MAX_FRAMES, MAX_RUNS, Bounded
from tnt_notebook.telemetry.frame import news

INTERVAL = 0.2  # seconds between two frames sent to the browser
RANKS_AT_FULL_PACE = 64


def interval_of(ranks: int) -> float:
    """Seconds between two frames sent to the browser: those of very many ranks are large."""
    return INTERVAL * max(1.0, ranks / RANKS_AT_FULL_PACE)


class LiveView:
    """One run as a person sees it in the notebook.

    Example::

        view = LiveView("ResNet50", ranks=8, on_stop=fit.stop)
        view.show()
        view.update(frame)          # from any thread, as often as frames come
        view.finish("finished")
    """

    def __init__(
        self,
        title: str,
        ranks: int,
        on_stop: Callable[[], None],
        on_save: Callable[[], str] | None = None,
    ) -> None:
        """Makes the view; nothing shows before `show`.

        Args:
            title: What the run is called, in a few words.
            ranks: How many ranks take part.
            on_stop: Called once, in the kernel's main thread, when the Stop button is pressed.
            on_save: Called there when the button that saves the trace is pressed; returns the path
                of the file. Without it there is no such button.
        """
        self._title = title
        self._ranks = ranks
        self._on_stop = on_stop
        self._on_save = on_save
        self._lock = threading.Lock()
        self._kept = Bounded(MAX_FRAMES, MAX_RUNS)
        self._drawn: Frame | None = None
        self._rows: list[Row] = []
        self._news: dict[str, Any] = {}  # not yet drawn
        self._ended = False
        self._places: list[DisplayHandle] = []
        self._placeholder = saved.placeholder(title, ranks)
        self._card = Card(title, ranks, can_save=on_save is not None)
        self._card.observe(self._stop_pressed, "stop_requested")
        self._card.observe(self._save_pressed, "save_requested")
        self._to_browser: Paced[Frame] = Paced(self._draw, interval_of(ranks))

    @property
    def frames(self) -> list[Frame]:
        """The frames seen so far, run by run; of a very long run fewer of the older ones."""
        with self._lock:
            return self._kept.frames

    def show(self) -> None:
        """Displays the card, and the place where the figure will be, under the current cell."""
        shown = [display(self._card, display_id=True)]
        if getattr(get_ipython(), "kernel", None) is not None:
            shown.append(display(self._placeholder, raw=True, display_id=True))
        # Where there is no IPython, display has just printed.
        self._places = [place for place in shown if place is not None]

    def update(self, frame: Frame) -> None:
        """Takes a frame in; the browser sees the latest a few times a second. From any thread."""
        with self._lock:
            if self._ended:
                return
            self._kept.add(frame)
            shown = self._is_to_be_drawn(frame)
        if shown:
            self._to_browser.put(frame)

    def finish(self, state: State, error: str | None = None, traceback: str = "") -> None:
        """Ends the live view and leaves summary and figure. From any thread; once.

        Args:
            state: ``"finished"``, ``"stopped"`` or ``"failed"``.
            error: Why it failed, in a few paragraphs at most.
            traceback: Of the ranks, as plain text: it is folded.
        """
        traceback = shortened(traceback)
        with self._lock:
            if self._ended:
                return
            self._ended = True
            frames = self._kept.frames
        self._to_browser.flush()
        self._card.error, self._card.traceback = error or "", traceback
        self._card.state = state
        summary = saved.summary_bundle(self._title, self._ranks, frames, state, error, traceback)
        figure = saved.figure_bundle(frames)
        for place, bundle in zip(self._places, (summary, figure), strict=False):
            place.update(bundle, raw=True)
        self._card.leave(self._placeholder["text/plain"], summary, figure)

    def _is_to_be_drawn(self, frame: Frame) -> bool:
        """Whether the card shows this frame: not that of a predict in a callback of a fit."""
        last = self._drawn
        same_run = last is not None and last["start"] == frame["start"]
        if last and not same_run and last["state"] == "running" and frame["phase"] != "fit":
            return False
        # Apart from the frame: it may be dropped on the way to the browser.
        self._rows = frame.get("rows") or (self._rows if same_run else [])
        self._news = {**self._news, **news(frame)} if same_run else news(frame)
        self._drawn = frame
        return True

    def _draw(self, frame: Frame) -> None:
        if self._card.state == "starting" and frame["step"]:
            self._card.state = "running"
        with self._lock:
            undrawn, self._news = self._news, {}
        self._card.draw(cast(Frame, {**frame, **undrawn}), self._rows)

    def _stop_pressed(self, change: dict[str, Any]) -> None:
        if change["new"] and not self._ended:
            self._card.state = "stopping"
            self._on_stop()

    def _save_pressed(self, _: dict[str, Any]) -> None:
        if self._on_save is None:
            return
        try:
            self._card.saved = f"saved: {self._on_save()}"
        except Exception as error:  # whatever it was, the person who pressed must hear of it
            self._card.saved = f"not saved: {error}"
