"""What ``%tnt_plan`` has found, for code to go on with: as a table, in words, in a file, in a
cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from IPython import get_ipython

from tnt_notebook.dashboard.figures.wording import plural, rate, short_time, three_digits
from tnt_notebook.dashboard.reports.plan_terms import explain
from tnt_notebook.errors import PlanError
from tnt_notebook.plan import saved_plans
from tnt_notebook.plan.fit_options import typed_so
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.promise import Promise
from tnt_notebook.plan.saved_plans import Saved
from tnt_notebook.plan.terms import limited_by, seconds_of

if TYPE_CHECKING:
    import pandas as pd


class Plans(Sequence[PipelinePlan]):
    """Ways to train a model, the fastest first. What the fastest has, they have, too:
    ``plan.step_s`` is ``plan[0].step_s``.

    Example::

        plan.to_dataframe()          # a row for each way
        plan.explain("exchange")     # where time or memory goes, and what lowers it
        plan.by_ranks                # how fast it would be on fewer and on more ranks
        plan.save("plan.json")       # for %%tnt_fit --plan plan.json, here or elsewhere
        plan.apply()                 # %%tnt_fit with its options, in the next cell
        plan[1:].apply()             # those of the second
    """

    def __init__(self, ways: Iterable[Saved], by_ranks: Iterable[dict[str, Any]] = ()) -> None:
        """
        Args:
            ways: what to expect of each, and keyword arguments of ``tnt_notebook.distributed`` that
                train so.
            by_ranks: what to expect of the fastest way on other numbers of ranks.
        """
        self._ways, self._by_ranks = tuple(ways), tuple(by_ranks)

    @classmethod
    def open(cls, path: str | Path) -> Plans:
        """Those that :meth:`save` has written.

        Raises:
            PlanError: the file is missing, damaged, or of another version.
        """
        return cls(saved_plans.read(Path(path)))

    @overload
    def __getitem__(self, which: int) -> PipelinePlan: ...
    @overload
    def __getitem__(self, which: slice) -> Plans: ...
    def __getitem__(self, which: int | slice) -> PipelinePlan | Plans:
        if isinstance(which, slice):
            return Plans(self._ways[which], self._by_ranks)
        return self._ways[which][0]

    def __len__(self) -> int:
        return len(self._ways)

    def __iter__(self) -> Iterator[PipelinePlan]:
        return (plan for plan, _ in self._ways)

    def __getattr__(self, name: str) -> Any:
        # Not before there are any, as while one is copied.
        if name.startswith("_") or not self._ways:
            raise AttributeError(name)
        return getattr(self._ways[0][0], name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plans) and self._ways == other._ways

    __hash__ = None  # type: ignore[assignment]  # options are dicts

    def __repr__(self) -> str:
        if not self._ways:
            return "<Plans: none>"
        best = self[0]
        return (
            f"<Plans: {plural(len(self), 'way')} to train on {plural(self.promise.ranks, 'rank')}, "
            f"the fastest {self.typed or 'whole copies'}: {rate(best.samples_per_s)} samples/s, "
            f"{three_digits(best.speedup)} times one rank>"
        )

    @property
    def typed(self) -> str:
        """The options of ``%%tnt_fit`` for the first of them; "" for whole copies."""
        return " ".join(typed_so(self._first[1]))

    @property
    def promise(self) -> Promise:
        """What a fit by the first of them is to keep."""
        return Promise.of(*self._first)

    @property
    def by_ranks(self) -> list[dict[str, Any]]:
        """What to expect of the fastest way on each of some numbers of ranks, with the same batch,
        in order: ``ranks``, ``replicas``, ``stages``, ``options`` as typed, ``step_s``,
        ``samples_per_s``, ``speedup`` (by the fastest way on one rank), ``limited_by``, and seconds
        of a step, which add up to it: ``layers_s``, ``stages_s`` (until others have done theirs),
        ``exchange_s``, ``overhead_s`` and ``input_s``. Empty where the best way was not looked for,
        and of plans from a file."""
        return [dict(row) for row in self._by_ranks]

    def to_dataframe(self) -> pd.DataFrame:
        """A row for each way: ``options`` as typed, ``ranks``, ``replicas``, ``stages`` (ranks of a
        pipeline), ``schedule``, ``micro_batches``, ``recompute``, ``batch_size``, ``step_s``,
        ``samples_per_s``, ``speedup`` (by the fastest way on one rank), ``bubble`` (0 to 1),
        ``rank_bytes`` (of the rank that needs most), ``limited_by``, and seconds of a step:
        ``compute_s``, ``bubble_s``, ``imbalance_s``, ``messages_s``, ``exchange_s``,
        ``overhead_s``, ``input_s``.

        Raises:
            PlanError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise PlanError("pandas is not installed: pip install pandas.") from None
        return pd.DataFrame([_row(*way) for way in self._ways])

    def explain(self, term: str) -> str:
        """A term of the first of them: how long it takes, of which share of a step, where it comes
        from, and what lowers it.

        Args:
            term: ``"compute"``, ``"bubble"``, ``"imbalance"``, ``"messages"``, ``"exchange"``,
                ``"overhead"``, ``"input"`` or ``"memory"``.

        Raises:
            PlanError: there is no such term.
        """
        return explain(self._first[0], term)

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Writes all of them into a file of JSON, by which ``%%tnt_fit --plan FILE`` and
        ``tnt.Model(..., plan=FILE)`` train as the first says.

        Args:
            force: whether a file that is there may be replaced.

        Returns:
            The path.

        Raises:
            FileExistsError: it is there.
        """
        return saved_plans.write(self._ways, Path(path), force)

    def apply(self) -> str:
        """Puts a cell of ``%%tnt_fit`` with the options of the first below; code is to be added.

        Returns:
            The options.
        """
        best, typed = self._first[0], self.typed
        first = f"%%tnt_fit {typed}".rstrip()
        expect = f"expected: {short_time(best.step_s)} a step of {best.batch_size:,} samples"
        shell = get_ipython()
        if shell is not None:
            shell.set_next_input(f"{first}\n# {expect}\n")
        return typed

    @property
    def _first(self) -> Saved:
        if not self._ways:
            raise PlanError("There is no plan here: a slice of plans is empty.")
        return self._ways[0]


def _row(plan: PipelinePlan, options: dict[str, Any]) -> dict[str, Any]:
    return {
        "options": " ".join(typed_so(options)), "ranks": Promise.of(plan, options).ranks,
        "replicas": plan.replicas, "stages": plan.ranks, "schedule": plan.schedule,
        "micro_batches": plan.micro_batches, "recompute": plan.recompute,
        "batch_size": plan.batch_size, "step_s": plan.step_s, "samples_per_s": plan.samples_per_s,
        "speedup": plan.speedup, "bubble": plan.bubble, "rank_bytes": max(plan.rank_bytes),
        "limited_by": limited_by(plan),
        **{f"{term}_s": seconds for term, seconds in seconds_of(plan).items()},
    }  # fmt: skip
