"""The widget: a thin class whose traits are the whole protocol with ``widgets/card.js``."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from tnt_notebook.dashboard import assets
from tnt_notebook.dashboard.step_layout import card_step, time_of
from tnt_notebook.telemetry import Frame, Recorder, Row, thinned
from tnt_notebook.telemetry.sampling import evenly

HISTORY_LIMIT = 500  # points; the same number is in widgets/history.js
POINT = {"start", "seq", "elapsed", "logs", "rates"}
ROWS_DRAWN = 60  # of the finished epochs: they are sent again with each
TIMELINE_INTERVAL = 0.5  # seconds, between two steps that are sent
TIMELINE_BYTES_PER_S = 2000  # of many ranks a step is sent less often
DRAWN = {"start", "phase", "state", "epoch", "epochs", "step", "steps", "eta", "sharing"} | POINT


def _packed(value: dict[str, Any], _: Card | None = None) -> dict[str, bytes]:
    """As it travels: a quarter of the bytes. ``widgets/packed.js`` unpacks it."""
    return {"deflated": zlib.compress(json.dumps(value).encode())} if value else {}


def _drawn(frame: Frame) -> dict[str, Any]:
    """What the card draws of a frame, with as many digits as show."""
    return {
        **{name: value for name, value in frame.items() if name in DRAWN},
        "elapsed": round(frame["elapsed"], 2),
        "eta": None if frame["eta"] is None else round(frame["eta"]),
        "logs": _short(frame["logs"]),
        "rates": [_digits(rate, 4) for rate in frame["rates"]],
    }


def _short(row: Row) -> Row:
    return {name: _digits(value, 6) for name, value in row.items()}


def _digits(value: float | None, digits: int) -> float | None:
    if value is None:
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 10**digits else short


class Card(anywidget.AnyWidget):
    """One run, drawn live in the browser.

    ``history`` is the ring buffer that a browser reads when it comes back from a refresh. It grows
    in place, on both sides and by the same rule, so that a frame sends itself only: a new value of
    the trait would send all of it again, five times a second.
    """

    _esm = assets.module("card.js")
    _css = assets.text("card.css")

    title = traitlets.Unicode().tag(sync=True)
    ranks = traitlets.Int(1).tag(sync=True)
    state = traitlets.Unicode("starting").tag(sync=True)
    """starting, running, stopping, finished, stopped or failed."""
    error = traitlets.Unicode("").tag(sync=True)
    traceback = traitlets.Unicode("").tag(sync=True)
    """Of the ranks that failed, as plain text."""
    frame: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """The latest frame, without what the card does not draw."""
    rows: traitlets.List[Any] = traitlets.List().tag(sync=True)
    """The finished epochs; of very many fewer of the older ones."""
    history: traitlets.List[Any] = traitlets.List().tag(
        sync=True, to_json=lambda points, _: list(points)
    )
    """``[{"start", "seq", "elapsed", "logs", "rates"}, ...]``, one for each frame shown."""
    time: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """Where the time of a step goes, see :func:`~tnt_notebook.dashboard.step_layout.time_of`."""
    timeline: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True, to_json=_packed)
    """The latest step, see :func:`~tnt_notebook.dashboard.step_layout.card_step`."""
    left: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """What stays when the run has ended, for a browser that lost the displays to a refresh."""
    stop_requested = traitlets.Bool(False).tag(sync=True)
    """Set by the Stop button."""
    can_save = traitlets.Bool(False).tag(sync=True)
    """Whether there is a button for the trace."""
    save_requested = traitlets.Int(0).tag(sync=True)
    """How often the button was pressed."""
    saved = traitlets.Unicode("").tag(sync=True)
    """What became of it: ``saved: PATH``."""

    def __init__(self, title: str, ranks: int, can_save: bool = False) -> None:
        before = _drawn(Recorder(ranks, start=0.0).frame(0.0))
        super().__init__(title=title, ranks=ranks, can_save=can_save, frame=before)
        self._next_timeline = 0.0  # Unix time

    def open(self) -> None:
        """Connects the card with the browser.

        What the browser sends is handled by the subshell that it names, so that a button works
        while a cell blocks the kernel. ipykernel 7.4 would rather take the subshell of whatever
        message came last when the card was drawn: the blocked one, or one that is gone.
        """
        super().open()
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = lambda data, named: named

    def draw(self, frame: Frame, rows: Sequence[Row]) -> None:
        """Shows a frame and the epochs finished so far; the history is that of one run."""
        drawn = _drawn(frame)
        with self.hold_sync():  # one message instead of one for each trait
            if self.history and self.history[-1]["start"] != frame["start"]:
                self.history.clear()
                self.time, self.timeline, self._next_timeline = {}, {}, 0.0
            self.history.append({name: v for name, v in drawn.items() if name in POINT})
            self.history[:] = evenly(self.history, HISTORY_LIMIT, lambda p: p["elapsed"])
            self.rows = [_short(row) for row in thinned(list(rows), ROWS_DRAWN)]
            self.time = time_of([frame]) or self.time
            self._draw_step(frame)
            self.frame = drawn

    def _draw_step(self, frame: Frame) -> None:
        now, over = frame["time"], frame["state"] != "running"
        if "step_trace" not in frame or (now < self._next_timeline and not over):
            return
        self.timeline = card_step(frame["step_trace"])
        size = len(_packed(self.timeline)["deflated"])
        self._next_timeline = now + max(TIMELINE_INTERVAL, size / TIMELINE_BYTES_PER_S)

    def leave(self, placeholder: str, summary: dict[str, Any], figure: dict[str, Any]) -> None:
        """Has two MIME bundles take the places of the card and of the placeholder, which its text
        tells, wherever the kernel's own updates cannot.
        """
        left = {"placeholder": placeholder, "summary": summary, "figure": figure}
        self.left = {"model_id": self.model_id, **left}

    def __repr__(self) -> str:
        # What shows where there is no browser: the same text in every run.
        return f"{self.title}: live view of {self.ranks} rank{'s' if self.ranks > 1 else ''}"
