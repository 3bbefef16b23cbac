"""``%tnt_bench input``: measures what loaders deliver to the ranks, and shows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from tnt_notebook import telemetry
from tnt_notebook.dashboard.figures.wording import plural, rate, short_time, three_digits
from tnt_notebook.dashboard.reports.loading import (
    NAMES,
    STORAGES,
    InputBench,
    figure_bundle,
    limit_words,
    own_verdict,
)  # fmt: skip
from tnt_notebook.errors import ClusterError, DataError, RankError
from tnt_notebook.magics.progress import StatusLine, in_notebook, show
from tnt_notebook.magics.table import Bold, Table, bundle
from tnt_notebook.plan.loading import SYNTHETIC
from tnt_notebook.protocol import Call, Published
from tnt_notebook.telemetry.breakdown import shares

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster, Fit

#: Seconds of measuring a dataset of the cells, without --seconds.
OWN_S = 4.0

#: A fit that waits for input more than this says little about what it could consume.
_MOST_WAITED = 0.9


class Interrupted(ClusterError):
    """The measurement was interrupted; ``bench`` has what was complete."""

    def __init__(self, bench: InputBench | None) -> None:
        self.bench = bench
        done = plural(len(bench.measured), "loader") if bench and bench.measured else "nothing"
        super().__init__(f"measured before the interrupt: {done}. The ranks are free again.")


def consumed_by(fit: Fit | None) -> tuple[float | None, str]:
    """Samples/s that a fit consumes while it has input, and how that is said; None: not known."""
    frames = telemetry.main_run(fit.frames) if fit else []
    of_ranks = telemetry.breakdowns(frames)
    if fit is None or not of_ranks:
        return None, ""
    waited = min(_MOST_WAITED, shares(of_ranks)["input"])
    return telemetry.median_samples_per_s(frames) / (1 - waited), f"{fit.title} consumes"


def run(cluster: Cluster, question: dict[str, Any], need: float | None, need_of: str) -> InputBench:
    """Measures loaders of generated files, and shows what they deliver.

    Args:
        question: what the ranks' ``loading.measure.Question`` takes.
        need: samples/s that all ranks consume; None: not known.
        need_of: where that comes from, as "fit consumes".

    Raises:
        UsageError: the ranks refuse the question.
        Interrupted: what had been measured is shown, and with the error.
        RankError: it failed on ranks.
    """
    view = _View(need, need_of)
    begun = time.monotonic()
    try:
        answers = cluster.call(
            Call.MEASURE_LOADERS, question, on_data=view.take, report=view.status.update
        )
    except RankError as error:
        if error.interrupted:
            view.end("interrupted", view.so_far)
            raise Interrupted(view.so_far) from None
        view.end("failed", view.so_far)
        raise
    answer = answers[min(answers)]
    if "refused" in answer:
        raise UsageError(answer["refused"])
    bench = InputBench(answer, need, need_of)
    took = plural(max(1, round(time.monotonic() - begun)), "second")
    view.end(f"{plural(len(bench.measured), 'loader')} measured in {took}", bench)
    return bench


def run_own(
    cluster: Cluster, name: str, seconds: float, need: float | None, need_of: str
) -> dict[str, Any]:
    """Measures a dataset of the cells, and shows what it delivers.

    Returns:
        What :func:`tnt_notebook.plan.loading.own_row` gives.

    Raises:
        DataError: it cannot be measured; the message says why.
        RankError: it failed on ranks.
    """
    status = StatusLine()
    begun = time.monotonic()

    def take(data: dict[str, Any]) -> None:
        if Published.LOADED in data:
            status.update(data[Published.LOADED]["what"])

    answers = cluster.call(Call.MEASURE_INPUT, name, seconds, on_data=take, report=status.update)
    row: dict[str, Any] = answers[min(answers)]
    if "refused" in row:
        raise DataError(row["refused"])
    took = plural(max(1, round(time.monotonic() - begun)), "second")
    status.end(f"{name} measured in {took}")
    show(own_bundle(row, cluster.ranks, need, need_of))
    return row


def own_bundle(row: dict[str, Any], ranks: int, need: float | None, need_of: str) -> dict[str, str]:
    """Verdict, and where the time of a sample goes."""
    facts = [
        ("samples/s of all ranks", rate(row["samples_per_s"])),
        ("samples/s of a rank", _span([rate(one) for one in row["rank_samples_per_s"]])),
        ("first batch after", short_time(row["first_s"])),
        ("cores in use", f"{row['busy']:.0%}"),
        *((f"{p['part']}, a sample", short_time(p["seconds"])) for p in row["parts"]),
    ]
    head = (row["dataset"], row["kind"])
    return bundle(Table(head, facts, left={head[0]}), Bold(own_verdict(row, ranks, need, need_of)))


def input_bundle(bench: InputBench) -> dict[str, str]:
    """Headline, a table of what was best and one of all, and the verdict."""
    measured = bench.measured
    most, ahead = (sorted({row[key] for row in measured}) for key in ("calls", "prefetch"))
    by_calls = [plural(count, "call") for count in most]
    without = [f"prefetch {count}" for count in ahead[:-1]]
    feeds = [] if bench.need is None else ["feeds"]
    head = ("format", "storage", *by_calls, *without, "MB/s", "MB/s a rank", *feeds, "limit")
    rows: list[list[str]] = []
    best = set()
    if (one := bench.synthetic) is not None:
        fed = [] if bench.need is None else [f"{one['feeds']} of {bench.ranks}"]
        dashes = ["-"] * (len(by_calls) + len(without) + 1)
        cells = [rate(one["samples_per_s"]), *dashes, *fed]
        rows.append([NAMES[SYNTHETIC], STORAGES[one["storage"]], *cells, "copying in memory"])
    for name, storage in dict.fromkeys((row["format"], row["storage"]) for row in measured):
        here = [r for r in measured if (r["format"], r["storage"]) == (name, storage)]

        def at(calls: int, prefetch: int, here: list[dict[str, Any]] = here) -> str:
            found = [
                rate(r["samples_per_s"]) for r in here
                if (r["calls"], r["prefetch"]) == (calls, prefetch)
            ]  # fmt: skip
            return found[0] if found else "-"

        top = max(here, key=lambda row: row["samples_per_s"])
        if top["prefetch"] == ahead[-1]:
            best.add((len(rows), plural(top["calls"], "call")))
        else:
            best.add((len(rows), f"prefetch {top['prefetch']}"))
        rate_mb = top["bytes_per_s"] / 1e6
        rows.append(
            [
                NAMES[name], STORAGES[storage], *(at(count, ahead[-1]) for count in most),
                *(at(most[-1], count) for count in ahead[:-1]), three_digits(rate_mb),
                three_digits(rate_mb / bench.ranks),
                *([] if bench.need is None else [f"{top['feeds']} of {bench.ranks}"]),
                limit_words(top),
            ]
        )  # fmt: skip
    missing = [row for row in bench.rows if "missing" in row]
    dashes = ["-"] * (len(head) - 2)
    rows += [[NAMES[row["format"]], *dashes, row["missing"]] for row in missing]
    return bundle(
        f"samples/s to all ranks (* the fastest): {bench.headline}",
        Table(head, rows, left={"format", "storage", "limit"}, best=best),
        Bold(bench.verdict),
    )


class _View:
    """A status line; then table and figure."""

    def __init__(self, need: float | None, need_of: str) -> None:
        self.status = StatusLine()
        self.so_far: InputBench | None = None
        self._need = need, need_of

    def take(self, data: dict[str, Any]) -> None:
        """Takes a report of rank 0."""
        report = data.get(Published.LOADED)
        if report is None:
            return
        self.status.update(f"{report['done']} of {report['total']}: {report['what']}")
        self.so_far = InputBench(report["result"], *self._need, complete=False)

    def end(self, line: str, bench: InputBench | None) -> None:
        """Leaves a last line, and what was measured."""
        self.status.end(line)
        if bench is None or not bench.measured:
            return
        if not in_notebook():
            print(input_bundle(bench)["text/plain"])
            return
        display(input_bundle(bench), raw=True)
        display(figure_bundle(bench), raw=True)


def _span(words: list[str]) -> str:
    return words[0] if len({*words}) == 1 else f"{', '.join(words[:8])}{', ...' * (len(words) > 8)}"
