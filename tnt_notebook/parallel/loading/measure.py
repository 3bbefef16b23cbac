"""Measures loaders on all ranks at the same time, since they share cores and storage."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tnt_notebook.comm.world import World
from tnt_notebook.parallel.consistency.agreement import everyones
from tnt_notebook.parallel.loading import samples
from tnt_notebook.parallel.loading.loaders import loader, readers, synthetic
from tnt_notebook.parallel.loading.storage import Rates, Throttle
from tnt_notebook.plan.loading import FORMATS, LOCAL, STORAGES, SYNTHETIC, THROTTLED, row_of

_WARM_UP = 0.3  # of the time of a measurement, in which buffers fill
_SHORTEST_S = 0.1

#: Called on all ranks before each measurement with ``{"done", "total", "what", "result"}``: the
#: result so far.
Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Question:
    """What to measure of generated files.

    Attributes:
        formats, storages: of :data:`~tnt_notebook.plan.loading.FORMATS` and ``STORAGES``.
        calls: numbers of parallel ones.
        prefetch: numbers of batches; those but the largest are measured with most calls alone.
        latency_s, bytes_per_s: of the throttled storage, for the ranks of a node together.
        seconds: for all measurements.
        side: pixels of a square image.
        batch: samples of a rank's batch.
        count: images of a rank, read again and again.
    """

    formats: tuple[str, ...] = FORMATS
    storages: tuple[str, ...] = STORAGES
    calls: tuple[int, ...] = (1, 4, 16)
    prefetch: tuple[int, ...] = (0, 2)
    latency_s: float = 1e-3
    bytes_per_s: float = 100e6
    seconds: float = 20.0
    side: int = 128
    batch: int = 16
    count: int = 64

    def cases(self) -> list[dict[str, Any]]:
        """What is read, and how, in the order in which it is measured.

        Raises:
            ValueError: there is too little time for so many.
        """
        least, most = max(self.prefetch), max(self.calls)
        first = {"format": SYNTHETIC, "storage": "memory", "calls": 1, "prefetch": least}
        cases = [first] + [
            {"format": name, "storage": storage, "calls": calls, "prefetch": prefetch}
            for name in self.formats
            for storage in self.storages
            for calls in sorted(self.calls)
            for prefetch in sorted(self.prefetch)
            if prefetch == least or calls == most
        ]
        if self.seconds < _SHORTEST_S * len(cases):
            raise ValueError(
                f"--seconds {self.seconds:g} is too short for {len(cases)} measurements: at least "
                f"{_SHORTEST_S * len(cases):.1f}, or fewer formats, storages or calls"
            )
        return cases


def measure(over: World, question: Question, report: Report) -> dict[str, Any]:
    """Measures what loaders of generated files deliver. Collective; Ctrl-C works as in any.

    Returns:
        Plain data, the same on all ranks: ``{"ranks", "nodes", "cores", "latency_s",
        "bytes_per_s", "side", "batch", "rows"}``, where ``rows`` are as
        :func:`tnt_notebook.plan.loading.row_of` has them; of a format that there is not here they
        have ``missing``: why.

    Raises:
        ValueError: the question makes no sense.
    """
    cases = question.cases()
    cores = cores_of(over)
    nodes = len(set(over.node))
    beside = list(over.node).count(over.node[over.rank])
    whole = question.bytes_per_s * nodes
    rates = Rates(question.latency_s, question.bytes_per_s / beside)
    result: dict[str, Any] = {
        "ranks": over.size, "nodes": nodes, "cores": cores, "latency_s": question.latency_s,
        "bytes_per_s": question.bytes_per_s, "side": question.side, "batch": question.batch,
        "rows": [],
    }  # fmt: skip
    lacking = {name: _lacking(over, name) for name in question.formats}
    with samples.folder() as where:
        files: dict[str, samples.Files] = {}
        pixels = samples.images(question.count, question.side, over.rank)
        for done, case in enumerate(cases):
            name, row = case["format"], None
            report({"done": done, "total": len(cases), "what": _said(case), "result": result})
            if reason := lacking.get(name):
                if not any(one["format"] == name for one in result["rows"]):
                    row = {"format": name, "missing": reason}
            else:
                if name != SYNTHETIC and name not in files:
                    files[name] = samples.written(name, pixels, where)
                own = _own(question, case, files.get(name), rates, len(cases), over)
                full = whole if case["storage"] == THROTTLED else float("inf")
                at_once = readers(name, case["calls"])
                row = row_of(case, everyones(over, own), cores, full, at_once)
            if row is not None:
                result["rows"].append(row)
    return result


def delivered(
    elements: Iterator[Any], seconds: float, count: Callable[[Any], int]
) -> dict[str, float]:
    """What comes to somebody who takes it as fast as it can, on this rank.

    Args:
        elements: without end.
        seconds: for all; the first part of it is not counted, nor the first element.
        count: how many samples an element is.

    Returns:
        ``samples``, ``seconds``, ``cpu_s`` and ``queued_s``, as of `row_of`; ``first_s``: until the
        first element was there.
    """
    began = time.monotonic()
    next(elements)
    first = time.monotonic() - began
    # The first element may take longer than all that there is time for.
    starts = max(began + _WARM_UP * seconds, time.monotonic())
    end = starts + (1 - _WARM_UP) * seconds
    while time.monotonic() < starts:
        next(elements)
    total, counted, cpu, queued = 0, time.monotonic(), time.process_time(), _queued_s()
    while (now := time.monotonic()) < end or not total:
        total += count(next(elements))
    return {
        "samples": total, "seconds": now - counted, "cpu_s": time.process_time() - cpu,
        "queued_s": max(0.0, _queued_s() - queued), "first_s": first,
    }  # fmt: skip


def cores_of(over: World) -> int:
    """Cores that all ranks have together; several may have the same ones. Collective."""
    own = sorted(os.sched_getaffinity(0))
    return len(
        {
            (node, core)
            for node, cores in zip(over.node, everyones(over, own), strict=True)
            for core in cores
        }
    )


def _own(
    question: Question,
    case: dict[str, Any],
    files: samples.Files | None,
    rates: Rates,
    cases: int,
    over: World,
) -> dict[str, float]:
    """What this rank measures of a case, beginning when all do."""
    throttle = Throttle(rates) if case["storage"] == THROTTLED else None
    if files is None:
        dataset = synthetic(question.side, question.batch, case["prefetch"])
        bytes_each = 0.0
    else:
        dataset = loader(
            case["format"], files, throttle, case["calls"], question.batch, case["prefetch"]
        )
        bytes_each = files.sample_bytes
    over.barrier()
    own = delivered(again(dataset), question.seconds / cases, lambda batch: question.batch)
    waited = throttle.calls_waiting() * own["seconds"] if throttle else 0.0
    return {**own, "bytes": own["samples"] * bytes_each, "waited_s": waited}


def _lacking(over: World, name: str) -> str:
    """Why ranks cannot read a format; empty: all can. Collective."""
    reasons = everyones(over, samples.missing(name))
    first = next((rank for rank, reason in enumerate(reasons) if reason), None)
    if first is None:
        return ""
    return str(reasons[first]) + ("" if all(reasons) else f" (on rank {first})")


def _said(case: dict[str, Any]) -> str:
    if case["format"] == SYNTHETIC:
        return SYNTHETIC
    where = "local files" if case["storage"] == LOCAL else "throttled storage"
    calls = case["calls"]
    return f"{case['format']} from {where}, {calls} parallel call{'s' * (calls > 1)}"


def again(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Elements of a dataset, from its begin where it ends. Raises ValueError where it has none."""
    while True:
        yield from once(dataset)


def once(dataset: tf.data.Dataset) -> Generator[Any, None, None]:
    """Elements of a dataset. Raises ValueError where it has none."""
    element = None
    for element in dataset:
        yield element
    if element is None:
        raise ValueError("it has no element")


def _queued_s() -> float:
    """Seconds for which threads of this process wanted a core, and others had it."""
    total = 0
    for thread in Path("/proc/self/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[1])
        except (OSError, IndexError):  # it has just ended, or the kernel does not count
            continue
    return total * 1e-9
