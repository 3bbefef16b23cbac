"""What each rank does over a whole run: it starts, imports, traces, trains, waits.

::

    rank 0  |starting|importing|building|tracing|training......|validation|end of epoch|training..
    rank 1  |starting|importing   |wait.|tracing|training......|validation|wait........|training..

A rank does one thing at a time, until the next begins. There are a few an epoch; steps have traces
of their own, see :mod:`.step_trace`. The kinds are a table, ``activities.json``, for Python and the
browser.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

from tnt_notebook.telemetry.curves import Curves
from tnt_notebook.telemetry.meters import Readings, Sampler
from tnt_notebook.telemetry.pace import TOLD_S, slower
from tnt_notebook.telemetry.step_trace import Count


@dataclass(frozen=True)
class Doing:
    """A row of the table.

    Attributes:
        letter: by which it travels.
        name: by which code says that it begins.
        words: what a legend calls it.
        meaning: for the reader of the table.
        colour: in light and dark themes.
        line: whether it is drawn as a line, and not as a box.
    """

    letter: str
    name: str
    words: str
    meaning: str
    colour: str
    line: bool = False


_ROWS = json.loads(Path(__file__).with_name("activities.json").read_bytes())
#: What a rank may be doing, by letter, in the order of a legend.
DOING = {row["letter"]: Doing(**row) for row in _ROWS}
#: Letters by name.
LETTER = {doing.name: doing.letter for doing in DOING.values()}

#: Of a long run a rank tells less often: what is shorter than this part of it would be less than a
#: pixel.
_PIXEL = 1 / 2000

Tell = Callable[["Activities"], object]


class Activities(TypedDict):
    """What a rank has done since it last told: each entry until the begin of the next."""

    rank: Count
    doing: Annotated[str, lambda letters: set(letters) <= set(DOING)]
    """A letter for each entry."""
    begins: list[float]
    """Unix times in seconds."""
    seconds: Annotated[dict[str, float], lambda seconds: set(seconds) <= set(DOING)]
    """How long it has done what, by letter, since the run began, up to the begin of the last entry.
    What was too short to be told is counted, too."""
    meters: NotRequired[Readings]
    """What it has measured since then; in frames, those of all ranks are together."""


def is_even(news: Activities) -> bool:
    """Whether each entry has a begin."""
    return len(news["doing"]) == len(news["begins"])


class Log:
    """What this rank does in a cell. Of one thread; another tells it.

    Args:
        tell: called with what is new, a few times a second at most.
        ranks: how many tell.
        sampler: measures meanwhile, and what it has is told, too.
    """

    def __init__(self, rank: int, ranks: int, tell: Tell, sampler: Sampler | None = None) -> None:
        self._rank, self._tell = rank, tell
        self._sampler = sampler or Sampler(rank, ranks, {})
        self._pace = slower(ranks)
        self._lock = threading.Lock()
        self._doing: list[str] = []
        self._begins: list[float] = []
        self._seconds: dict[str, float] = defaultdict(float)
        self._since = 0.0  # when the last entry began, or went on
        self._told = self._gathered = 0
        self._ended = threading.Event()
        self._teller = threading.Thread(target=self._run, name="tnt-activities", daemon=True)
        self._teller.start()

    @property
    def now(self) -> str:
        """What the rank does, by name; empty before it has said so."""
        return DOING[self._doing[-1]].name if self._doing else ""

    def begin(self, name: str) -> None:
        """Something else begins."""
        letter = LETTER[name]
        if self._doing and self._doing[-1] == letter:
            return
        now = time.time()
        with self._lock:
            if self._doing:
                self._seconds[self._doing[-1]] += now - self._since
            self._since = now
            known = max(1, self._told, self._gathered)
            if len(self._doing) > known and now - self._begins[-1] < self._shortest(now):
                # Too short to be seen, and nobody knows of it: as if it had not been.
                del self._doing[-1], self._begins[-1]
                if self._doing[-1] == letter:
                    return
            self._doing.append(letter)
            self._begins.append(now)

    def gather(self, all_of_it: bool = False) -> Activities | None:
        """What is new since the last call, as far as it was told; None where there is nothing."""
        with self._lock:
            since = self._gathered
            self._gathered = len(self._doing) if all_of_it else max(since, self._told)
            return self._news(since, self._gathered, self._sampler.gather())

    def end(self) -> None:
        """Tells what is new, and no more after it."""
        self._ended.set()
        self._teller.join()
        self._say(all_of_it=True)

    def _run(self) -> None:
        due = 0.0
        while not self._ended.wait(min(1.0, self._interval())):
            if self._sampler.measure(time.time()) or time.monotonic() >= due:
                self._say()
                due = time.monotonic() + self._interval()

    def _say(self, all_of_it: bool = False) -> None:
        with self._lock:
            since, end = self._told, len(self._doing)
            now = time.time()
            if end and not all_of_it and now - self._begins[-1] < self._shortest(now):
                end -= 1  # it may be over before anybody could see it
            self._told = max(since, end)
            news = self._news(since, end, self._sampler.tell(all_of_it))
        if news is not None:
            self._tell(news)

    def _news(self, since: int, end: int, measured: Readings | None) -> Activities | None:
        if end <= since and measured is None:
            return None
        begins = [round(begin, 3) for begin in self._begins[since:end]]
        seconds = {letter: round(s, 3) for letter, s in self._seconds.items()}
        letters = "".join(self._doing[since:end])
        news = Activities(rank=self._rank, doing=letters, begins=begins, seconds=seconds)
        return news if measured is None else {**news, "meters": measured}

    def _interval(self) -> float:
        return self._pace * max(TOLD_S, self._shortest(time.time()))

    def _shortest(self, now: float) -> float:
        return max(0.01, _PIXEL * (now - self._begins[0])) if self._begins else 0.0


_log: Log | None = None


@contextlib.contextmanager
def logged(log: Log) -> Iterator[None]:
    """Inside, what this process does goes into a log."""
    global _log
    _log = log
    try:
        yield
    finally:
        _log = None
        log.end()


def begin(name: str) -> None:
    """This rank begins something, by its name in the table. Does nothing without a log."""
    if _log is not None:
        _log.begin(name)


def now() -> str:
    """What this rank does, by name; empty without a log."""
    return "" if _log is None else _log.now


@contextlib.contextmanager
def during(name: str) -> Iterator[None]:
    """Around something; after it the rank does what it did before."""
    before = now()
    begin(name)
    try:
        yield
    finally:
        if before:
            begin(before)


def gathered(all_of_it: bool = False) -> Activities | None:
    """What is new on this rank since the last call, see :meth:`Log.gather`."""
    return None if _log is None else _log.gather(all_of_it)


@dataclass
class RankRibbon:
    """All that a rank has told of a run, as in :class:`Activities`.

    Attributes:
        before: seconds of the processes that had its place before.
        marked: since when it does what it cannot tell itself, until it tells again; Unix time.
    """

    doing: str = ""
    begins: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    marked: float | None = None


@dataclass
class Ribbon:
    """What all ranks did over a run.

    Attributes:
        began, ended: Unix times; it ends with the last thing that is known of it.
        ranks: those that have told, by rank.
        meters: what they have measured.
    """

    began: float
    ended: float
    ranks: dict[int, RankRibbon] = field(default_factory=dict)
    meters: Curves = field(default_factory=Curves)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


def add(ribbon: Ribbon, news: Activities) -> Activities | None:
    """Puts what a rank tells behind what it has told; what is known already is passed over.

    Returns:
        What was new of it, without the sums; None where nothing was.
    """
    own = ribbon.ranks.setdefault(news["rank"], RankRibbon())
    after = own.begins[-1] if own.begins else 0.0
    new = bisect_left(news["begins"], after + 5e-4)  # told to a thousandth of a second
    doing, begins = news["doing"][new:], news["begins"][new:]
    if not begins:
        return None
    if own.marked is not None:
        own.before, own.marked = totals(own, begins[0]), None
    own.doing += doing
    own.begins += begins
    own.seconds = dict(news["seconds"])
    return Activities(rank=news["rank"], doing=doing, begins=begins, seconds={})


def mark(ribbon: Ribbon, ranks: Iterable[int], name: str, at: float) -> list[Activities]:
    """What is known of ranks that cannot tell it themselves: that they are dead, say. Returns what
    they would have told."""
    told = []
    for rank in ranks:
        own = ribbon.ranks.setdefault(rank, RankRibbon())
        own.before, own.seconds, own.marked = totals(own, at), {}, at
        own.doing += LETTER[name]
        own.begins.append(at)
        told.append(Activities(rank=rank, doing=LETTER[name], begins=[at], seconds={}))
    return told


def totals(own: RankRibbon, until: float) -> dict[str, float]:
    """Seconds for which a rank has done what, by letter, until a Unix time."""
    seconds = defaultdict(float, own.seconds)
    for letter, before in own.before.items():
        seconds[letter] += before
    if own.doing:
        seconds[own.doing[-1]] += max(0.0, until - own.begins[-1])
    return dict(seconds)
