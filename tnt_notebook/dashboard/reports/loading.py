"""What ``%tnt_bench input`` found, for people to read and for code to go on with."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.card.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.figures.loading_figure import by_format
from tnt_notebook.dashboard.figures.wording import plural, rate, short_time
from tnt_notebook.plan.loading import (
    BANDWIDTH,
    CALLS,
    CPU,
    LATENCY,
    LOCAL,
    PYTHON,
    STORAGE,
    SYNTHETIC,
    THROTTLED,
    fed,
)  # fmt: skip

NAMES = {
    "raw": "raw pixels", "png": "PNG", "jpeg": "JPEG", "tfrecord": "TFRecord",
    "parquet": "Parquet", SYNTHETIC: "synthetic",
}  # fmt: skip
STORAGES = {LOCAL: "local files", THROTTLED: "throttled storage", "memory": "memory"}
LIMITS = {
    CPU: "cores", BANDWIDTH: "storage: bandwidth",
    LATENCY: "storage: latency", PYTHON: "one thread of Python", CALLS: "parallel calls",
    STORAGE: "storage",
}  # fmt: skip


def limit_words(row: dict[str, Any]) -> str:
    """What limits the loader of a row."""
    if row["limit"] != CPU:
        return LIMITS[row["limit"]]
    return "cores, copying" if row["format"] == "raw" else "cores, decoding"


#: What is written as files one each, in the order in which a person probably has them.
_OF_PEOPLE = ("jpeg", "png", "raw", "tfrecord", "parquet")
#: Another loader is worth a word if it delivers so many times as much.
WORTH_A_WORD = 1.3


class InputBench:
    """What loaders of generated images delivered to the ranks of a cluster.

    Example::

        [row for row in bench.rows if row["format"] == "jpeg"]
        bench.figure.write_image("input.pdf")

    Attributes:
        rows: a dict for each measurement: ``format``, ``storage`` (local, throttled; memory of
            synthetic), ``calls``, ``prefetch``, ``samples_per_s`` and ``bytes_per_s`` (read from
            storage) of all ranks, ``rank_samples_per_s``, ``busy`` (share of the cores that was
            used or wanted), ``waiting`` (share of the time that what reads waits for storage),
            ``limit``, ``feeds`` (ranks; None where ``need`` is). What cannot be measured here has
            ``format`` and ``missing``.
        need: samples/s that all ranks consume; None: not known.
        need_of: where that comes from.
        ranks, nodes, cores, side, batch, latency_s, bytes_per_s: what was measured.
        complete: False where it was interrupted.
    """

    def __init__(
        self,
        result: dict[str, Any],
        need: float | None = None,
        need_of: str = "",
        complete: bool = True,
    ) -> None:
        self.need, self.need_of, self.complete = need, need_of, complete
        self.ranks: int = result["ranks"]
        self.nodes: int = result["nodes"]
        self.cores: int = result["cores"]
        self.side: int = result["side"]
        self.batch: int = result["batch"]
        self.latency_s: float = result["latency_s"]
        self.bytes_per_s: float = result["bytes_per_s"]
        self.rows: list[dict[str, Any]] = [
            row if "missing" in row
            else {**row, "feeds": fed(row["samples_per_s"], need, self.ranks)}
            for row in result["rows"]
        ]  # fmt: skip

    @property
    def measured(self) -> list[dict[str, Any]]:
        """The rows of what was measured of files."""
        return [r for r in self.rows if "missing" not in r and r["format"] != SYNTHETIC]

    @property
    def synthetic(self) -> dict[str, Any] | None:
        """The row of what has no files."""
        return next((row for row in self.rows if row["format"] == SYNTHETIC), None)

    @property
    def figure(self) -> go.Figure:
        """Samples/s by format, storage and parallel calls, for plotly."""
        return by_format(self.rows, self.need, NAMES, STORAGES, limit_words)

    @property
    def headline(self) -> str:
        """What was measured, in a line."""
        cores = plural(self.cores, "core")
        return (
            f"images of {self.side} x {self.side} pixels to {plural(self.ranks, 'rank')} on "
            f"{cores}, all at the same time; throttled storage: {short_time(self.latency_s)} "
            f"a request, {self.bytes_per_s / 1e6:g} MB/s a node"
        )

    @property
    def verdict(self) -> str:
        """Which ranks a person's files feed, what limits them, and what to do."""
        return verdict(self)

    def best(self, name: str, storage: str) -> dict[str, Any] | None:
        """The row of the calls and prefetch with which a format comes fastest from a storage."""
        here = [r for r in self.measured if (r["format"], r["storage"]) == (name, storage)]
        return max(here, key=lambda row: row["samples_per_s"]) if here else None

    def __repr__(self) -> str:
        return f"<{self.headline}; {plural(len(self.measured), 'measurement')}>"


def verdict(bench: InputBench) -> str:
    """One or two sentences: of what comes from the slower storage, and of what would be faster."""
    storage = THROTTLED if any(r["storage"] == THROTTLED for r in bench.measured) else LOCAL
    bests = {name: row for name in _OF_PEOPLE if (row := bench.best(name, storage)) is not None}
    if not bests:
        return "Nothing was measured."
    name, own = next(iter(bests.items()))
    from_where = f"{NAMES[name]} from {STORAGES[storage]}"
    least = min(
        (r for r in bench.measured if (r["format"], r["storage"]) == (name, storage)),
        key=lambda row: row["samples_per_s"],
    )
    gain = own["samples_per_s"] / least["samples_per_s"]
    how = f"with {plural(own['calls'], 'parallel call')}"
    if gain > WORTH_A_WORD and least["calls"] != own["calls"]:
        how += f" ({gain:.1f} times as many as with {least['calls']})"
    delivers = rate(own["samples_per_s"])
    if bench.need is None:
        first = f"{from_where} delivers {delivers} samples/s {how}"
    else:
        feeds = f"feeds {own['feeds']} of {plural(bench.ranks, 'rank')}"
        of = f"{delivers} samples/s, where {bench.need_of} {rate(bench.need)}"
        first = f"{from_where} {feeds}: {of}, {how}"
        if own["feeds"] == bench.ranks:
            more = f"{delivers} samples/s {how}, and {bench.need_of} {rate(bench.need)}"
            return f"{from_where} {feeds}: {more}. Input does not limit training."
    return f"{first}. The {_limited(own)} limits it: {_mend(bench, name, own, storage)}."


def _limited(row: dict[str, Any]) -> str:
    return {
        BANDWIDTH: "bandwidth of the storage", LATENCY: "latency of the storage",
        CPU: "decoding on the cores", PYTHON: "thread of Python that reads",
        CALLS: "number of parallel calls",
    }[row["limit"]]  # fmt: skip


def _mend(bench: InputBench, name: str, own: dict[str, Any], storage: str) -> str:
    """What is faster than what a person has, by how much."""
    tries = []
    if storage == THROTTLED and (local := bench.best(name, LOCAL)):
        tries.append(("stage the files, tnt.data.staged(...)", local))
    for other in _OF_PEOPLE:
        row = bench.best(other, storage)
        if other != name and row is not None:
            tries.append((f"write {NAMES[other]}", row))
    better = [
        (what, row) for what, row in tries
        if row["samples_per_s"] > WORTH_A_WORD * own["samples_per_s"]
    ]  # fmt: skip
    if not better:
        if own["limit"] == CPU:
            return "give ranks more cores, make images smaller, or keep what is decoded (.cache())"
        return "more parallel calls, or a faster storage"
    # What feeds all is enough; the first of those is the least work.
    enough = [(what, row) for what, row in better if row["feeds"] == bench.ranks]
    what, row = enough[0] if enough else max(better, key=lambda one: one[1]["samples_per_s"])
    if row["feeds"] is not None:
        return f"{what}, which feeds {row['feeds']}"
    times = row["samples_per_s"] / own["samples_per_s"]
    return f"{what}, which delivers {times:.1f} times as many"


def own_verdict(row: dict[str, Any], ranks: int, need: float | None, need_of: str) -> str:
    """What a person's own dataset delivers, where the time goes, and what to do; a few sentences.

    Args:
        row: as :func:`tnt_notebook.plan.loading.own_row` has it.
    """
    to_all = plural(ranks, "rank")
    said = f"{row['dataset']} delivers {rate(row['samples_per_s'])} samples/s to {to_all}"
    feeds = fed(row["samples_per_s"], need, ranks)
    if feeds is not None:
        assert need is not None
        said += f", and feeds {feeds} of them: {need_of} {rate(need)}"
        if feeds == ranks:
            return f"{said}. Input does not limit training."
    sentences = [f"{said}."]
    if row["parts"]:
        shares = ", ".join(f"{part['share']:.0%} {part['part']}" for part in row["parts"])
        sentences.append(f"Of the time of a sample alone: {shares}.")
    if row["reading"]:
        sentences.append(
            f"{row['reading'][:1].upper()}{row['reading'][1:]}. Let each map its own samples only, "
            "as the guide says."
        )
    sentences.append(_own_mend(row))
    return " ".join(sentences)


def _own_mend(row: dict[str, Any]) -> str:
    limit = row["limit"]
    if limit == CPU:
        return (
            "The cores limit it: give ranks more of them, keep what is decoded (.cache()), or do "
            "less with each sample."
        )
    if limit == PYTHON:
        if row["kind"] == "PyDataset":
            return "Python limits it: give the PyDataset workers, or read with tf.data."
        return "Python limits it: a generator is one thread; read with tf.data."
    if limit == STORAGE:
        return (
            "Reading limits it, and not the cores: read several files at a time (interleave), or "
            "stage them, tnt.data.staged(...)."
        )
    if row["calls"] == 1:
        return "One call at a time limits it: .map(..., num_parallel_calls=16)."
    return (
        "Its calls wait, and the cores are free: let more of them wait at the same time, "
        "options.threading.private_threadpool_size = 16 of tf.data."
    )


def figure_bundle(bench: InputBench) -> Bundle:
    """The figure as it stays in a notebook."""
    return {
        PLOTLY: bench.figure.to_plotly_json(),
        "text/plain": "Figure: samples/s that loaders deliver, by format, storage and calls.",
    }
