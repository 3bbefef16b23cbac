"""The widget: a thin class whose traits are the whole protocol with ``widgets/card.js``."""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import traitlets

from tnt_notebook.dashboard.card import assets
from tnt_notebook.dashboard.card.live_widget import LiveWidget
from tnt_notebook.dashboard.card.run_picture import busy
from tnt_notebook.dashboard.figures.step_layout import card_step, time_of, time_of_step
from tnt_notebook.dashboard.figures.wording import plural
from tnt_notebook.telemetry import Frame, Recorder, Row, thinned
from tnt_notebook.telemetry.activities import Activities
from tnt_notebook.telemetry.curves import Point, fewer
from tnt_notebook.telemetry.pace import CARD_BYTES_PER_S, STEP_S
from tnt_notebook.telemetry.sampling import evenly

HISTORY_LIMIT = 500  # points; the same number is in widgets/history.js
POINT = {"start", "seq", "elapsed", "epoch", "logs", "busy"}
MISSED_S = 5.0  # without a point: what was told then comes with the next one
ROWS_DRAWN = 60  # of the finished epochs: they are sent again with each
DRAWN = {
    "start",
    "phase",
    "state",
    "epochs",
    "step",
    "steps",
    "eta",
    "exchange",
    "input",
    "plan",
    "skipped",
    "diverged",
} | POINT
#: What a step is called that the person looks at; the latest one is called what it is.
LOOKED_AT = {"median": "median step", "slowest": "slowest step", "at": "step"}
SENTENCE_S = 5.0  # for which a sentence stands at least


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
        "busy": busy(frame),
    }


def _point(drawn: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in drawn.items() if name in POINT}


def _time_of_point(point: dict[str, Any]) -> float:
    return float(point["start"] + point["elapsed"])


def _short(row: Row) -> Row:
    return {name: _digits(value, 6) for name, value in row.items()}


def _digits(value: float | None, digits: int) -> float | None:
    if value is None:
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 10**digits else short


class Card(LiveWidget):
    """The runs of one cell, drawn live in the browser.

    ``history`` and ``ribbon`` are what a browser reads when it comes back from a refresh. They grow
    in place, on both sides and by the same rules, so that only what is new is sent: a new value of
    the trait would send all of it again, five times a second.
    """

    _esm = assets.module("card.js")
    _css = assets.text("card.css")
    emptied: ClassVar[dict[str, Any]] = {"history": [], "rows": []}

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
    """``[{"start", "seq", "elapsed", "epoch", "logs", "busy"}, ...]``, one for each frame shown."""
    ribbon: traitlets.Dict[str, Any] = traitlets.Dict().tag(
        sync=True, to_json=lambda ribbon, _: copy.deepcopy(ribbon)
    )
    """What each rank does: ``{"began": Unix time, "rows": [[rank, "sict", [0, 120, ...]], ...]}``,
    the begins in ms since then; and ``"meters": [[Unix time, {"c": [97, 98], ...}], ...]``, see
    ``curves.points``."""
    told: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """What is new of it: ``{"seq": 4, "rows": [[rank, "tv", [8120, 9310]], ...]}``, and meters
    where there is something new of them."""
    low = traitlets.Unicode("").tag(sync=True)
    """What is said of memory that is nearly used up."""
    now = traitlets.Float(0.0).tag(sync=True)
    """The Unix time at which the kernel spoke last; it does so every other second."""
    time_summary = traitlets.Unicode("").tag(sync=True)
    """Where the time of the run went, in a sentence."""
    timeline: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True, to_json=_packed)
    """The step that is looked at, see ``step_layout.card_step``."""
    time: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """Where the time of steps goes, see ``step_layout.time_of``; of one that is looked at, its."""
    look: traitlets.Dict[str, Any] = traitlets.Dict({"which": "live"}).tag(sync=True)
    """Which step that is, as the person says: ``{"which": "live"}``, ``"median"``, ``"slowest"``,
    or ``{"which": "at", "seconds": 12.5}`` since the begin."""
    follows: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """``{"card": text, "id": own model_id}``, where it takes the place of another kernel's card:
    that one's text."""
    stop_requested = traitlets.Bool(False).tag(sync=True)
    """Set by the Stop button."""
    can_save = traitlets.Bool(False).tag(sync=True)
    """Whether there is a button for the trace."""
    save_requested = traitlets.Int(0).tag(sync=True)
    """How often the button was pressed."""
    saved = traitlets.Unicode("").tag(sync=True)
    """What became of it: ``saved: PATH``."""

    def __init__(
        self,
        title: str,
        ranks: int,
        can_save: bool = False,
        began: float = 0.0,
        follows: bool = False,
    ) -> None:
        before = _drawn(Recorder(ranks, start=0.0).frame(0.0))
        ribbon = {"began": began, "rows": [], "meters": []}
        super().__init__(title=title, ranks=ranks, can_save=can_save, frame=before, ribbon=ribbon)
        if follows:
            self.follows = {"card": _words(title, ranks), "id": self.model_id}
        self._next_timeline = self._next_summary = self._next_limit = 0.0  # Unix times

    def draw(self, frame: Frame, rows: Sequence[Row], run: Sequence[Frame] = ()) -> None:
        """Shows a frame and the epochs of its run that have ended so far.

        Args:
            run: the frames of this run so far, this one or a later one the last.
        """
        drawn = _drawn(frame)
        with self.hold_sync():  # one message instead of one for each trait
            if self.history and self.history[-1]["start"] != frame["start"]:
                self.time, self.timeline = {}, {}
                self._next_timeline = self._next_limit = 0.0
            if missed := self._missed(frame, run):  # a new value of the trait sends them all, once
                self.history = [*self.history, *map(_point, map(_drawn, missed))]
            self.history.append(_point(drawn))
            self.history[:] = evenly(self.history, HISTORY_LIMIT, _time_of_point)
            self.rows = [_short(row) for row in thinned(list(rows), ROWS_DRAWN)]
            self._draw_step(frame)
            self._draw_time(frame, run)
            self.frame = drawn

    def _missed(self, frame: Frame, run: Sequence[Frame]) -> list[Frame]:
        """Those of a run that came between the last one drawn and this one, where that is long ago:
        when the run is read from its folder, after a kernel has begun to follow it."""
        last = self.history[-1] if self.history else {"start": -1.0, "seq": 0, "elapsed": 0.0}
        if last["start"] != frame["start"]:
            last = {"seq": 0, "elapsed": 0.0}
        if frame["elapsed"] - last["elapsed"] < MISSED_S:
            return []
        return [one for one in run if last["seq"] < one["seq"] < frame["seq"]]

    def begin_at(self, began: float) -> None:
        """The run began earlier than was known, at this Unix time."""
        later = round(1000 * (self.ribbon["began"] - began))
        rows = [[rank, doing, [at + later for at in begins]]
                for rank, doing, begins in self.ribbon["rows"]]  # fmt: skip
        self.ribbon = {**self.ribbon, "began": began, "rows": rows}

    def tell(
        self,
        news: Sequence[Activities],
        now: float,
        time_summary: Callable[[], str],
        points: Sequence[Point] = (),
        low: str = "",
    ) -> None:
        """Shows what ranks do, and measure.

        Args:
            now: Unix time.
            points: what they have measured since the last call.
            low: what is said of memory that is nearly used up.
            time_summary: says where the time went so far; called every few seconds only, as each
                sentence is shown for at least that long.
        """
        with self.hold_sync():
            self.now = now
            if (now >= self._next_summary or not self.time_summary) and (said := time_summary()):
                self.time_summary, self._next_summary = said, now + SENTENCE_S
            self.low = low
            if news or points:
                self._tell(news, points)

    def _tell(self, news: Sequence[Activities], points: Sequence[Point]) -> None:
        began, rows = self.ribbon["began"], self.ribbon["rows"]
        told = [
            [one["rank"], one["doing"], [round(1000 * (at - began)) for at in one["begins"]]]
            for one in news
        ]
        known = {row[0]: row for row in rows}
        for rank, doing, begins in told:
            if rank not in known:
                rows.append([rank, "", []])
                rows.sort(key=lambda row: row[0])
                known = {row[0]: row for row in rows}
            known[rank][1] += doing
            known[rank][2] += begins
        measured = dict([*self.ribbon["meters"], *points])
        self.ribbon["meters"][:] = fewer(sorted(measured.items()))
        new = {"meters": list(points)} if points else {}
        self.told = {"seq": self.told.get("seq", 0) + 1, "rows": told, **new}

    def _draw_step(self, frame: Frame) -> None:
        """Shows the step of a frame, unless it comes too soon or the person looks at another."""
        now, over = frame["time"], frame["state"] != "running"
        is_early = now < self._next_timeline and not over
        if is_early or self.look["which"] != "live":
            return
        if "step_trace" in frame:
            self._show(frame)
            size = len(_packed(self.timeline)["deflated"])
            self._next_timeline = now + max(STEP_S, size / CARD_BYTES_PER_S)

    def _draw_time(self, frame: Frame, run: Sequence[Frame]) -> None:
        """Shows where the time of steps goes, bars and sentence together: each stands for a while,
        so that both can be read."""
        now, over = frame["time"], frame["state"] != "running"
        if self.look["which"] == "live" and (now >= self._next_limit or over):
            self.time = time_of(run)
            self._next_limit = now + (SENTENCE_S if self.time.get("limit") else STEP_S)

    def show_step(self, frame: Frame, run: Sequence[Frame]) -> None:
        """Shows the step of a frame, which a person asks for; or the latest again, and where the
        time of all of them goes."""
        self._show(frame)
        which = self.look["which"]
        self.time = time_of(run) if which == "live" else time_of_step(frame, LOOKED_AT[which])

    def _show(self, frame: Frame) -> None:
        trace, which = frame["step_trace"], self.look["which"]
        at = round(trace["time"] - self.ribbon["began"], 3)
        self.timeline = {**card_step(trace, LOOKED_AT.get(which, "")), "at": at, "which": which}

    def __repr__(self) -> str:
        # What shows where there is no browser: the same text in every run.
        return _words(self.title, self.ranks)


def _words(title: str, ranks: int) -> str:
    return f"{title}: live view of {plural(ranks, 'rank')}"
