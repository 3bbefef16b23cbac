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
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from IPython.display import DisplayHandle, display

from tnt_notebook import telemetry
from tnt_notebook.dashboard.card import saved
from tnt_notebook.dashboard.card.card import Card
from tnt_notebook.dashboard.card.time_summary import time_summary
from tnt_notebook.dashboard.card.traceback import shortened
from tnt_notebook.dashboard.figures.wording import progress
from tnt_notebook.jupyter import notebook
from tnt_notebook.telemetry import Frame, Row, State, activities, curves
from tnt_notebook.telemetry.activities import Activities, Ribbon
from tnt_notebook.telemetry.bounds import MAX_FRAMES, MAX_RUNS, Bounded
from tnt_notebook.telemetry.frame import news, with_news
from tnt_notebook.telemetry.kept_ribbon import Mark
from tnt_notebook.telemetry.meters import Readings
from tnt_notebook.telemetry.pace import HEARTBEAT_S, TOLD_S, Paced, slower


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
        began: float | None = None,
    ) -> None:
        """Makes the view; nothing shows before `show`.

        Args:
            title: What the run is called, in a few words.
            ranks: How many ranks take part.
            on_stop: Called once, in the kernel's main thread, when the Stop button is pressed.
            on_save: Called there when the button that saves the trace is pressed; returns the path
                of the file. Without it there is no such button.
            began: The Unix time at which another kernel has begun the run, where one has: what that
                has left in this notebook gives way to this view.
        """
        self._title = title
        self._ranks = ranks
        self._on_stop = on_stop
        self._on_save = on_save
        self._lock = threading.Lock()
        self._kept = Bounded(MAX_FRAMES, MAX_RUNS)
        self._latest: Frame | None = None
        self._undrawn: Frame | None = None
        self._rows: list[Row] = []
        self._news: dict[str, Any] = {}  # not yet drawn
        self._follows = began is not None
        self._ribbon = Ribbon(begin := began or time.time(), begin)
        self._told: list[Activities] = []  # not yet drawn
        self._measured: set[int] = set()  # the same, in these seconds
        self._ended = threading.Event()
        self._places: list[DisplayHandle] = []
        self._copies: list[DisplayHandle] = []
        self._placeholder = saved.placeholder(title, ranks)
        self._card = Card(
            title, ranks, can_save=on_save is not None, began=begin, follows=self._follows
        )
        self._card.observe(self._stop_pressed, "stop_requested")
        self._card.observe(self._save_pressed, "save_requested")
        self._card.observe(self._look_asked, "look")
        self._to_browser: Paced[None] = Paced(self._draw, TOLD_S * slower(ranks))
        self._heart = threading.Thread(target=self._beat, name="tnt-heartbeat", daemon=True)

    @property
    def frames(self) -> list[Frame]:
        """The frames seen so far, run by run; of a very long run fewer of the older ones."""
        with self._lock:
            return self._kept.frames

    @property
    def began(self) -> float:
        """Unix time since when the card counts."""
        return self._ribbon.began

    @property
    def ended(self) -> float:
        """Unix time until when it counts, so far or at the end."""
        return self._ribbon.ended

    def show(self) -> None:
        """Displays the card, and the place where the figure will be, under the current cell."""
        shown = [display(self._card, display_id=True)]
        if notebook.kernel() is not None:
            shown.append(display(self._placeholder, raw=True, display_id=True))
        # Where there is no IPython, display has just printed.
        self._places = [place for place in shown if place is not None]
        self._heart.start()

    def show_again(self) -> None:
        """Displays the card under the current cell, too."""
        if (place := display(self._card, display_id=True)) is not None:
            self._copies.append(place)

    def update(self, frame: Frame) -> None:
        """Takes a frame in; the browser sees the latest a few times a second. From any thread."""
        with self._lock:
            if self._ended.is_set():
                return
            self._kept.add(frame)
            self._take_activities(frame.get("activities", []))
            self._take_meters(frame.get("meters", []))
            self._take_in(frame)
        self._to_browser.put(None)

    def tell(self, news: Sequence[Activities]) -> None:
        """Takes in what ranks do. From any thread."""
        with self._lock:
            if self._ended.is_set():
                return
            self._take_activities([one for one in news if one["doing"]])
            self._take_meters([one["meters"] for one in news if "meters" in one])
        self._to_browser.put(None)

    def mark(self, ranks: Sequence[int], name: str) -> Mark:
        """Ranks are ``dead``, or do something else that they cannot tell themselves."""
        now = Mark(ranks=list(ranks), name=name, at=time.time())
        with self._lock:
            self._told += activities.mark(self._ribbon, **now)
        self._to_browser.put(None)
        return now

    def finish(self, state: State, error: str | None = None, traceback: str = "") -> None:
        """Ends the live view and leaves summary and figure. From any thread; once.

        Args:
            state: ``"finished"``, ``"stopped"`` or ``"failed"``.
            error: Why it failed, in a few paragraphs at most.
            traceback: Of the ranks, as plain text: it is folded.
        """
        traceback = shortened(traceback)
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            frames, ribbon = self._kept.frames, self._ribbon
            # What another kernel has begun may have ended long ago.
            ribbon.ended = frames[-1]["time"] if self._follows and frames else time.time()
        self._to_browser.put(None)
        self._to_browser.flush()
        self._card.error, self._card.traceback = error or "", traceback
        self._card.state = state
        summary = saved.summary_bundle(
            self._title, self._ranks, frames, state, error, ribbon, traceback
        )
        figure = saved.figure_bundle(frames)
        for place, bundle in zip(self._places, (summary, figure), strict=False):
            place.update(bundle, raw=True)
        for place in self._copies:
            place.update(summary, raw=True)
        self._card.leave(self._placeholder["text/plain"], summary, figure)

    def _take_in(self, frame: Frame) -> None:
        """The card shows this frame, unless it is that of a predict in a callback of a fit."""
        last = self._latest
        same_run = last is not None and last["start"] == frame["start"]
        if last and not same_run and last["state"] == "running" and frame["phase"] != "fit":
            return
        # Apart from the frame: it may be dropped on the way to the browser.
        self._rows = frame.get("rows") or (self._rows if same_run else [])
        self._news = with_news(self._news, news(frame)) if same_run else news(frame)
        self._latest = self._undrawn = frame

    def _take_activities(self, some: Sequence[Activities]) -> None:
        # Ranks began before the run had a folder, or their host's clock is behind.
        first = [one["begins"][0] for one in some if one["begins"]]
        self._ribbon.began = min([self._ribbon.began, *first])
        added = (activities.add(self._ribbon, one) for one in some)
        self._told += [one for one in added if one is not None]

    def _take_meters(self, some: Sequence[Readings]) -> None:
        for readings in some:
            self._measured |= curves.add(self._ribbon.meters, readings)

    def _draw(self, _: None) -> None:
        with self._lock:
            frame, self._undrawn = self._undrawn, None
            undrawn, self._news = self._news, {}
            told, self._told = self._told, []
            points = curves.points(self._ribbon.meters, self._measured, self._ranks)
            self._measured, low = set(), self._ribbon.meters.warning
            now, rows, began = time.time(), self._rows, self._ribbon.began
            run = [one for one in self._kept.frames if frame and one["start"] == frame["start"]]
        if frame is not None:
            if self._card.state == "starting" and frame["step"]:
                self._card.state = "running"
            self._card.draw(cast(Frame, with_news(frame, undrawn)), rows, run)
        if began < self._card.ribbon["began"]:
            self._card.begin_at(began)
        self._card.tell(told, now, self._time_summary, points, low)

    def _time_summary(self) -> str:
        with self._lock:
            self._ribbon.ended = time.time()
            # Without the median step: the sentence stands, and what is below it moves on.
            return time_summary(self._ribbon)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            self._to_browser.put(None)
            with self._lock:
                if not self._ended.is_set():
                    self._card.tell_meanwhile(self._places, self._placeholder, self._in_words)

    def _in_words(self) -> str:
        frame = self._latest
        return f"{self._title}: {progress(frame) if frame and frame['step'] else 'starting'}"

    def _look_asked(self, change: dict[str, Any]) -> None:
        """The person looks at a step of before, or at the latest again."""
        with self._lock:
            run = telemetry.main_run(self._kept.frames)
        looks = [frame for frame in run if "step_trace" in frame]
        if looks:
            self._card.show_step(_asked(looks, change["new"], self._ribbon.began), run)

    def _stop_pressed(self, change: dict[str, Any]) -> None:
        if change["new"] and not self._ended.is_set():
            self._card.state = "stopping"
            self._on_stop()

    def _save_pressed(self, _: dict[str, Any]) -> None:
        if self._on_save is None:
            return
        try:
            self._card.saved = f"saved: {self._on_save()}"
        except Exception as error:  # whatever it was, the person who pressed must hear of it
            self._card.saved = f"not saved: {error}"


def _asked(looks: Sequence[Frame], look: dict[str, Any], began: float) -> Frame:
    """The frame with the step that a person asks for."""
    which = look["which"]
    if which == "live":
        return looks[-1]
    if which == "at":
        return min(
            looks, key=lambda frame: abs(frame["step_trace"]["time"] - began - look["seconds"])
        )
    by_length = sorted(looks, key=lambda frame: frame["step_trace"]["seconds"])
    return by_length[-1] if which == "slowest" else by_length[len(by_length) // 2]
