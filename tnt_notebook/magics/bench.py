"""``%tnt_bench``: measures on the running cluster, shows it while it grows, and what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import DisplayHandle, display

from tnt_notebook.dashboard.bench import Bench, figure_bundle, placeholder
from tnt_notebook.dashboard.wording import plural, size
from tnt_notebook.errors import ClusterError, RankError, RulesError
from tnt_notebook.magics.bench_table import bench_bundle, rules_text
from tnt_notebook.magics.progress import StatusLine, in_notebook, noninteractive
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
        interrupted = "KeyboardInterrupt" in str(error)
        view.end(view.bench, "interrupted" if interrupted else "failed")
        if interrupted:
            raise Interrupted(view.bench) from None
        raise
    answer = answers[0]
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
    answer = cluster.call(Call.SAVE_RULES, bench.result, ranks=[0])[0]
    if "refused" in answer:
        raise RulesError(answer["refused"])
    cluster.call(Call.LOAD_RULES)
    what = f"{plural(len(bench.best), 'rule')} for {plural(bench.ranks, 'rank')}"
    return f"{what} saved in {answer['file']}, and in use from now on"


def show_rules(cluster: Cluster) -> None:
    """Prints the rules in use."""
    print(rules_text(cluster.call(Call.KNOWN_RULES, ranks=[0])[0]))


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
