"""A run in the Trace Event Format of Chrome, which https://ui.perfetto.dev opens.

::

    rank 0     samples/s   ___/~~~~~~~~~         a process for each rank; so are its meters
               compute     F0 F1 B0 F2 B1 O      a box for each that was measured
               messages       S1    X0 X1
    run        loss        ~~~~\\____            and one for what belongs to no rank
                              | epoch 1

The format: "Trace Event Format", Google, 2016. Times are microseconds since the run began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tnt_notebook.telemetry.analysis import runs, steps_seen
from tnt_notebook.telemetry.curves import curves_of
from tnt_notebook.telemetry.frame import Frame
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.meters import METERS
from tnt_notebook.telemetry.sampling import thinned
from tnt_notebook.telemetry.step_trace import BESIDE, Box, boxes, words_of

#: Of loss and samples per second: with 64 ranks and twice as many the file has 20 MB.
MAX_POINTS = 1000
#: The first thread of messages; those before it compute.
MESSAGES = 100

Event = dict[str, Any]


def chrome_trace(frames: Sequence[Frame], title: str = "run") -> dict[str, Any]:
    """The frames of a run as the object that a trace file holds.

    Boxes of a thread do not overlap: what goes on at the same time is in further threads.
    """
    begin = min((frame["start"] for frame in frames), default=0.0)
    ranks = max((len(frame["samples"]) for frame in frames), default=0)
    events = [*_of_processes(ranks), *_of_frames(frames, begin, ranks)]
    events += _of_meters(frames, begin)
    of_rank: dict[int, list[tuple[int, Box, str]]] = {}
    for run in runs(frames):
        for number, step in enumerate(steps_seen(run)):
            shift = step["time"] - begin
            for box in boxes(step):
                moved = box._replace(begin=shift + box.begin, end=shift + box.end)
                of_rank.setdefault(box.rank, []).append((number, moved, words_of(box, step)))
    for rank, some in sorted(of_rank.items()):
        events += _of_boxes(rank, some)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"title": title, "began": begin, "ranks": ranks},
    }


def _of_processes(ranks: int) -> Iterator[Event]:
    for pid, name in enumerate([*(f"rank {rank}" for rank in range(ranks)), "run"]):
        yield _event("M", "process_name", pid, 0, args={"name": name})
        yield _event("M", "process_sort_index", pid, 0, args={"sort_index": pid})


def _of_frames(frames: Sequence[Frame], begin: float, ranks: int) -> Iterator[Event]:
    epochs: dict[float, float] = {}
    for frame in frames:  # all: an epoch is said to have ended in a single frame
        last = max((row["epoch"] or 0.0 for row in frame.get("rows", [])), default=0.0)
        if last > epochs.get(frame["start"], 0.0):
            epochs[frame["start"]] = last
            yield _event("i", f"epoch {last:.0f}", ranks, 0, ts=_us(frame, begin), s="g")
    for frame in thinned(list(frames), MAX_POINTS):
        ts = _us(frame, begin)
        for rank, rate in enumerate(frame["rates"]):
            yield _event("C", "samples/s", rank, 0, ts=ts, args={"samples/s": rate})
        for name, value in frame["logs"].items():
            if value is not None:
                yield _event("C", name, ranks, 0, ts=ts, args={name: value})


def _of_meters(frames: Sequence[Frame], begin: float) -> Iterator[Event]:
    curves = curves_of(frames)
    for second in thinned(sorted(curves.at), MAX_POINTS):
        for letter, numbers in curves.at[second].items():
            name = f"{METERS[letter].label} ({METERS[letter].unit})"
            for rank, number in enumerate(numbers):
                if number is not None:
                    ts = round(1e6 * (second - begin), 3)
                    yield _event("C", name, rank, 0, ts=ts, args={name: number})


def _of_boxes(rank: int, some: Iterable[tuple[int, Box, str]]) -> Iterator[Event]:
    free: dict[int, float] = {0: 0.0, MESSAGES: 0.0}  # threads, and when they have nothing to do
    for step, box, words in sorted(some, key=lambda item: (item[1].begin, item[1].end)):
        first = MESSAGES if box.kind in BESIDE else 0
        begin, end = round(1e6 * box.begin, 3), round(1e6 * box.end, 3)
        tid = first
        while free.get(tid, begin) > begin:
            tid += 1
        free[tid] = end
        kind = BOX_KINDS[box.kind]
        numbers = {kind.stage: box.stage, kind.number: box.number}
        args: dict[str, Any] = {
            "step": step,
            **{name: value for name, value in numbers.items() if name},
        }
        if box.kind == "V":
            args["what"] = words
        dur = round(end - begin, 3)
        name = f"{box.kind}{box.number}" if kind.number else box.kind  # such as F3, X0, O
        yield _event("X", name, rank, tid, ts=begin, dur=dur, cat=kind.words, args=args)
    for tid in free:
        name = ("messages" if tid >= MESSAGES else "compute") + f" {tid % MESSAGES + 1}"
        yield _event("M", "thread_name", rank, tid, args={"name": name.removesuffix(" 1")})
        yield _event("M", "thread_sort_index", rank, tid, args={"sort_index": tid})


def _event(ph: str, name: str, pid: int, tid: int, **more: Any) -> Event:
    return {"ph": ph, "name": name, "pid": pid, "tid": tid, **more}


def _us(frame: Frame, begin: float) -> float:
    return round(1e6 * (frame["start"] - begin + frame["elapsed"]), 3)
