"""The live view of a sweep: a card while it runs, and the same as a still after."""

from __future__ import annotations

import threading
from collections.abc import Callable
from html import escape
from typing import Any, ClassVar

import traitlets
from IPython.display import DisplayHandle, display

from tnt_notebook.dashboard.card import assets
from tnt_notebook.dashboard.card.live_widget import LiveWidget
from tnt_notebook.dashboard.card.saved import Bundle
from tnt_notebook.dashboard.card.sweep_picture import inside, still, words
from tnt_notebook.jupyter import notebook
from tnt_notebook.sweep.board import Board
from tnt_notebook.telemetry.pace import HEARTBEAT_S, STEP_S, SWEEP_BYTES_PER_S, Paced


class SweepCard(LiveWidget):
    """Its traits are the whole protocol with ``widgets/sweep.js``."""

    _esm = assets.module("sweep.js")
    _css = assets.text("card.css") + assets.text("sweep.css")
    emptied: ClassVar[dict[str, Any]] = {"html": ""}

    title = traitlets.Unicode().tag(sync=True)
    state = traitlets.Unicode("starting").tag(sync=True)
    html = traitlets.Unicode("").tag(sync=True)
    """What is inside, below the header; drawn by :mod:`.sweep_picture`."""
    stop_requested = traitlets.Bool(False).tag(sync=True)
    """Set by the button that stops all."""
    stop_trial = traitlets.Int(-1).tag(sync=True)
    """Set by the button of a trial to its number."""

    def __repr__(self) -> str:
        return f"{self.title}: live view of a sweep"


class SweepView:
    """A sweep as a person sees it in the notebook.

    Args:
        board: gives what is to be shown now; called from any thread.
        on_stop: called with the number of a trial, or None for all, when a button is pressed.
    """

    def __init__(
        self, title: str, board: Callable[[], Board], on_stop: Callable[[int | None], None]
    ) -> None:
        self._board, self._on_stop = board, on_stop
        self._card = SweepCard(title=title)
        self._card.observe(self._stop_pressed, "stop_requested")
        self._card.observe(self._trial_pressed, "stop_trial")
        self._places: list[DisplayHandle] = []
        self._copies: list[DisplayHandle] = []
        self._ended = threading.Event()
        self._to_browser: Paced[None] = Paced(self._draw, STEP_S)
        self._heart = threading.Thread(target=self._beat, name="tnt-sweep-beat", daemon=True)

    def show(self) -> None:
        """Displays the card, and a place for words, under the current cell."""
        shown = [display(self._card, display_id=True)]
        if notebook.kernel() is not None:
            shown.append(display(_placeholder(self._card.title), raw=True, display_id=True))
        self._places = [place for place in shown if place is not None]
        self._heart.start()

    def show_again(self) -> None:
        """Displays the card under the current cell, too."""
        if (place := display(self._card, display_id=True)) is not None:
            self._copies.append(place)

    def update(self) -> None:
        """Something has changed. From any thread."""
        if not self._ended.is_set():
            self._to_browser.put(None)

    def finish(self, board: Board) -> None:
        """Ends the live view, and leaves a still; once."""
        self._ended.set()
        if self._heart.is_alive():
            self._heart.join()  # it may be telling how far the sweep is
        self._to_browser.flush()
        self._card.state, self._card.html = board.state, inside(board, stops=False)
        placeholder = _placeholder(self._card.title)
        summary = still_bundle(board)
        for place, bundle in zip(self._places, (summary, placeholder), strict=False):
            place.update(bundle, raw=True)
        for place in self._copies:
            place.update(summary, raw=True)
        self._card.leave(placeholder["text/plain"], summary, placeholder)

    def _draw(self, _: None) -> None:
        board = self._board()
        html = inside(board, stops=True)
        with self._card.hold_sync():
            self._card.state, self._card.html = board.state, html
        self._to_browser.interval = max(STEP_S, len(html) / SWEEP_BYTES_PER_S)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            self._to_browser.put(None)
            if not self._ended.is_set():
                self._card.tell_meanwhile(
                    self._places, _placeholder(self._card.title), lambda: words(self._board())
                )

    def _stop_pressed(self, change: dict[str, Any]) -> None:
        if change["new"] and not self._ended.is_set():
            self._on_stop(None)

    def _trial_pressed(self, change: dict[str, Any]) -> None:
        if change["new"] >= 0 and not self._ended.is_set():
            self._on_stop(change["new"])


def _placeholder(title: str) -> Bundle:
    """For what is told where no browser draws the view: nothing to see in one that does."""
    return {"text/html": "", "text/plain": f"{title}.figure() shows parallel coordinates by plotly"}


def still_bundle(board: Board) -> Bundle:
    """The sweep in words, and as a picture of the card where its style is."""
    text = words(board)
    style = f"<style>{assets.text('card.css')}{assets.text('sweep.css')}</style>"
    picture = (
        f'<div class="tnt-card" data-state="{board.state}" hidden="hidden">{still(board)}</div>'
    )
    return {
        "text/plain": text,
        "text/html": f'{style}{picture}<pre class="tnt-words">{escape(text)}</pre>',
    }
