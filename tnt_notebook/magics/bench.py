"""``%tnt_bench``: measures on the running cluster, shows it while it grows, and what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import DisplayHandle, display

from tnt_notebook.dashboard.figures.wording import plural, short_time, size, three_digits
from tnt_notebook.dashboard.reports.bench import Bench, figure_bundle, placeholder
from tnt_notebook.errors import ClusterError, RankError, RulesError
from tnt_notebook.magics.progress import StatusLine, in_notebook, noninteractive
from tnt_notebook.magics.table import Bold, Table, bundle
from tnt_notebook.protocol import Call, Published

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster


def run(cluster: Cluster, question: dict[str, Any]) -> Bench:
    """Measures and shows.

    Args:
        question: what the ranks' ``tuning.Question`` takes.

    Raises:
        UsageError: the ranks refuse the question.
        ClusterError: it was interrupted; what had been measured is shown, and with the error.
        RankError: it failed on ranks.
    """
    view = _View()
    begun = time.monotonic()
    try:
        answers = cluster.call(Call.MEASURE, question, on_data=view.take, report=view.status.update)
    except RankError as error:
        view.end(view.bench, "interrupted" if error.interrupted else "failed")
        if error.interrupted:
            raise Interrupted(view.bench) from None
        raise
    answer = answers[min(answers)]
    if "refused" in answer:
        raise UsageError(answer["refused"])
    bench = Bench(answer)
    took = plural(max(1, round(time.monotonic() - begun)), "second")
    view.end(bench, f"{plural(len(bench.sizes), 'size')} measured in {took}")
    return bench


class Interrupted(ClusterError):
    """The measurement was interrupted; ``bench`` has the sizes that were complete, if any."""

    def __init__(self, bench: Bench | None) -> None:
        self.bench = bench
        done = plural(len(bench.sizes), "size") if bench else "nothing"
        super().__init__(f"measured before the interrupt: {done}. The ranks are free again.")


def save(cluster: Cluster, bench: Bench) -> str:
    """Keeps the best algorithms as rules, and takes them into use; returns what to say.

    Raises:
        RulesError: the file of rules cannot be used.
    """
    answer = cluster.ask(Call.SAVE_RULES, bench.result)
    if "refused" in answer:
        raise RulesError(answer["refused"])
    cluster.call(Call.LOAD_RULES)
    what = f"{plural(len(bench.best), 'rule')} for {plural(bench.ranks, 'rank')}"
    return f"{what} saved in {answer['file']}, and in use from now on"


def show_rules(cluster: Cluster) -> None:
    print(rules_text(cluster.ask(Call.KNOWN_RULES)))


class _View:
    """A status line, then tables that grow in a notebook, then the figure."""

    def __init__(self) -> None:
        self.status = StatusLine()
        self.bench: Bench | None = None
        self._tables: DisplayHandle | None = None
        self._figure: DisplayHandle | None = None

    def take(self, data: dict[str, Any]) -> None:
        """Takes a report of rank 0."""
        report = data.get(Published.MEASURED)
        if report is None:
            return
        result, done = report["result"], report["round"]
        self.status.update(f"measuring {size(report['bytes'])}: round {done} of {result['rounds']}")
        if done == result["rounds"]:
            self.bench = Bench(result, complete=False)
            if in_notebook() and not noninteractive():
                self._show_tables(self.bench)

    def end(self, bench: Bench | None, line: str) -> None:
        """Leaves a last line, and what was measured."""
        self.status.end(line)
        if bench is None:
            return
        if not in_notebook():
            print(bench_bundle(bench)["text/plain"])
            return
        self._show_tables(bench)
        assert self._figure is not None
        self._figure.update(figure_bundle(bench), raw=True)

    def _show_tables(self, bench: Bench) -> None:
        bundle = bench_bundle(bench)
        if self._tables is not None:
            self._tables.update(bundle, raw=True)
            return
        self._tables = display(bundle, raw=True, display_id=True)
        # JupyterLab draws a figure once: what is to come is nothing to see until it is complete.
        self._figure = display(placeholder(), raw=True, display_id=True)


def bench_bundle(bench: Bench) -> dict[str, str]:
    """Headline, tables and verdict."""
    head = ("size", *bench.algorithms, "limit", "best GB/s", "rules take")
    rows: list[list[str]] = []
    best = set()
    for limit, use in zip(bench.limit, bench.in_use, strict=True):
        count = limit["bytes"]
        if (fastest := bench.clearly_fastest_at(count)) is not None:
            best.add((len(rows), fastest))
        times = [bench.row(name, count) for name in bench.algorithms]
        medians = [three_digits(1e6 * entry["median_s"]) for entry in (*times, limit)]
        gigabytes = three_digits(max(entry["bus_bytes_per_s"] for entry in times) / 1e9)
        rows.append([size(count), *medians, gigabytes, use["algorithm"]])
    model = "t = latency + bytes / rate"
    fits = [
        (fit["algorithm"], short_time(fit["latency_s"]), _rate(fit["bytes_per_s"]))
        for fit in bench.fits
    ]
    return bundle(
        f"{bench.headline}, in µs (* the fastest, both by medians and by the ratios within rounds)",
        Table(head, rows, left={"rules take"}, best=best),
        Table((model, "latency", "rate"), fits, left={model}, folded="the cost model"),
        Bold(bench.verdict),
    )


def rules_text(known: dict[str, Any]) -> str:
    """The rules in use, in order, and where they come from.

    Args:
        known: what the ranks say: ``file``, ``saved`` and ``default`` rules.
    """
    rows = [
        (
            rule["collective"],
            rule["algorithm"],
            "any" if rule["up_to_bytes"] is None else size(rule["up_to_bytes"]),
            _span(rule["min_ranks"], rule["max_ranks"]),
            rule["nodes"],
            {None: "either", True: "yes", False: "no"}[rule["in_place"]],
            rule["measured"] or origin,
        )
        for origin in ("saved", "default")
        for rule in known[origin]
    ]
    head = ("collective", "algorithm", "up to", "ranks", "nodes", "in place", "from")
    file = known["file"] or "none: TNT_RULES is empty"
    first = f"The first rule that matches counts. File of saved rules: {file}"
    return f"{first}\n\n{Table(head, rows, {*head} - {'up to'}).text()}"


def _rate(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else f"{three_digits(bytes_per_s / 1e9)} GB/s"


def _span(least: int, most: int | None) -> str:
    if most is None:
        return "any" if least == 1 else f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"
