"""The best ways to train a model on some ranks: found among all that there are, without a look at
those that cannot be among them.

A step takes no less than its work, shared evenly; and where its model is cut, no less than each
stage takes. So ways are looked at in the order of the former, the latter is asked of those that the
former leaves, and a step is simulated of those that both leave: as good as a look at all of them.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tnt_notebook.errors import MemoryLimitError, ModelError, ScheduleError
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.shares import largest
from tnt_notebook.plan.sharing import SHARDED, is_sharded


@dataclass(frozen=True)
class Way:
    """How ranks may train a model.

    Attributes:
        replicas: that share a batch.
        stages: ranks of each replica; 1: each has the whole model.
        schedule, micro_batches, recompute: as of :class:`tnt_notebook.Pipeline`.
        exchange: what replicas do with gradients: ``"sharded"``, ``"allreduce:bucket_mb=16"``;
            empty: an allreduce as usual.
        shares: of replicas in a batch, as of :class:`~tnt_notebook.plan.fit_options.FitOptions`;
            empty: equal ones.
        cut_at: as of :class:`tnt_notebook.Pipeline`; empty: where the slowest stage is fastest.
        mesh: the axes along which ranks divide the work inside of layers, as they are typed:
            ``"height=2"``; empty: each rank does all of it.
    """

    replicas: int
    stages: int = 1
    schedule: str = "1f1b"
    micro_batches: int = 1
    recompute: bool = False
    mesh: str = ""
    exchange: str = ""
    shares: tuple[int, ...] = ()
    cut_at: tuple[str, ...] = ()

    @property
    def parts(self) -> int:
        """How many ranks divide the work inside of layers."""
        return Mesh.parsed(self.mesh).size if self.mesh else 1

    @property
    def owners(self) -> int:
        """How many ranks share out the optimizer's state of a stage."""
        return self.replicas if is_sharded(self.exchange) else 1

    @property
    def alike(self) -> int:
        """How many ranks work on the same stage at the same time."""
        return self.replicas * self.parts

    def rows_of(self, batch_size: int) -> int:
        """Samples of the largest micro-batch."""
        return -(-largest(batch_size, self.replicas, self.shares) // self.micro_batches)

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``tnt_notebook.Pipeline``."""
        return {
            "stages": self.stages, "schedule": self.schedule,
            "micro_batches": self.micro_batches, "recompute": self.recompute,
            "cut_at": [*self.cut_at] or None,
        }  # fmt: skip

    @classmethod
    def of(cls, plan: PipelinePlan) -> Way:
        """The one that is planned."""
        inner = plan.layouts.inner if plan.layouts else ""
        # Where ranks differ in speed, a cut for equal ones is another.
        cut_at = tuple(stage.first for stage in plan.stages[1:] if plan.overheads.slowness)
        return cls(
            plan.replicas, plan.ranks, plan.schedule, plan.micro_batches, plan.recompute, inner,
            plan.exchange, plan.shares, cut_at,
        )  # fmt: skip

    @property
    def typed(self) -> str:
        """The options of ``%%tnt_fit``; none for whole copies that take their share at once."""
        mesh = f"--mesh {self.mesh}" if self.mesh else ""
        mesh += f" --exchange {self.exchange}" if self.exchange else ""
        mesh += f" --shares {','.join(map(str, self.shares))}" if self.shares else ""
        if not self.in_parts:
            return mesh.lstrip()
        schedule = f" --schedule {self.schedule}" if self.stages > 1 else ""
        recompute = " --recompute" if self.recompute else ""
        parts = f"--pipeline {self.stages} --micro-batches {self.micro_batches}"
        cut = f" --cut-at {','.join(self.cut_at)}" if self.cut_at else ""
        return f"{mesh} {parts}{schedule}{recompute}{cut}".lstrip()

    @property
    def in_parts(self) -> bool:
        """Whether the model is cut, or batches are: not where whole copies take their share at
        once."""
        return (self.stages, self.micro_batches, self.recompute) != (1, 1, False)


class Judged(NamedTuple):
    """What a way is judged by: seconds of a step, and bytes of the rank that needs most."""

    step_s: float
    bytes: int


@dataclass(frozen=True)
class Best:
    """What a search has found.

    Attributes:
        found: ways and how they were judged, the fastest first; of equal ones the one that needs
            least memory.
        there_are, looked_at: how many ways there are, and how many were looked at.
        too_large: how many of these need too much memory, and bytes of the least of them.
        refused: other reasons for which there is no plan, and how many ways each has excluded.
    """

    found: tuple[tuple[Way, Judged], ...]
    there_are: int
    looked_at: int
    too_large: tuple[int, float]
    refused: dict[str, int]


_USUAL = "1f1b"
#: Those that leave what is trained as it is.
ANY_EXCHANGE = ("", SHARDED)
#: Ranks at most among which stages are divided: there are too many such ways of more.
MOST_DIVIDED = 8

#: Micro-batches of a stage, at most: then a pipeline that fills and empties takes a ninth longer.
_PARTS = 8

#: Sums of the same times in another order differ by less.
_ROUNDED = 1 + 1e-9


def ways(
    ranks: int,
    batch_size: int,
    calls: int,
    meshes: Sequence[str] = (),
    exchanges: Sequence[str] = ANY_EXCHANGE,
    shares: tuple[int, ...] = (),
) -> Iterator[Way]:
    """All of a model of so many calls of layers.

    Args:
        exchanges: that replicas may have, as they are typed; on meshes the first of them.
        shares: of ranks that train whole copies; empty: they are equally fast.
        meshes: along which the work inside of layers can be divided, as of :class:`Way`; those of
            too many ranks are left out. With one of them there are pipelines of few ranks alone, of
            the usual order of work, without recomputation.
    """
    for way in _undivided(ranks, batch_size, calls):
        if way.stages == 1 and way.replicas == len(shares):
            way = replace(way, shares=shares)
        for exchange in exchanges if way.replicas > 1 else ("",):
            yield replace(way, exchange=exchange)
    for mesh in meshes:
        rest, left = divmod(ranks, Mesh.parsed(mesh).size)
        for way in _undivided(rest, batch_size, calls) if rest and not left else ():
            usual = not way.recompute and way.schedule == _USUAL
            if usual and (way.stages == 1 or ranks <= MOST_DIVIDED):
                yield replace(way, mesh=mesh, exchange=exchanges[0] if way.replicas > 1 else "")


def _undivided(ranks: int, batch_size: int, calls: int) -> Iterator[Way]:
    for stages in (n for n in range(1, min(ranks, calls) + 1) if ranks % n == 0):
        replicas = ranks // stages
        share = max(1, batch_size // replicas)  # samples of a replica
        parts = [1 << n for n in range(min(share, _PARTS * stages).bit_length())]
        families = FAMILIES.values() if stages > 1 else [FAMILIES[_USUAL]]
        for family in families:
            if stages * family.stages_per_rank > calls:
                continue
            for micro_batches in parts:
                yield Way(replicas, stages, family.name, micro_batches)
                yield Way(replicas, stages, family.name, micro_batches, recompute=True)


def best(
    among: Iterable[Way],
    bounds: Sequence[Callable[[Way], float]],
    judge: Callable[[Way], Judged],
    limit_bytes: float = float("inf"),
    count: int = 5,
    check: Callable[[Way], None] = lambda way: None,
) -> Best:
    """The fastest that fit into memory.

    Args:
        bounds: seconds that a step takes at least, the quickest to find out first. All but the
            first are asked of those alone that the ones before have not excluded.
        judge: by what to expect.
        limit_bytes: the memory that a rank may take.
        count: how many.
        check: of those alone that would be among the best.

    ``judge``, ``check`` and all ``bounds`` but the first raise ModelError or ScheduleError where
    there is no such way.
    """
    # The least bound first; and how many of the bounds have been asked.
    open_ways = [(bounds[0](way), number, 1, way) for number, way in enumerate(among)]
    heapq.heapify(open_ways)
    there_are = len(open_ways)
    found: list[tuple[Judged, int, Way]] = []
    refused: Counter[str] = Counter()
    too_large: list[float] = []
    looked_at = set[int]()
    while open_ways:
        least, number, asked, way = heapq.heappop(open_ways)
        if len(found) == count and least > found[-1][0].step_s * _ROUNDED:
            break
        looked_at.add(number)
        try:
            if asked < len(bounds):
                closer = max(least, bounds[asked](way))
                heapq.heappush(open_ways, (closer, number, asked + 1, way))
                continue
            one = (judge(way), number, way)
            if one[0].bytes > limit_bytes:
                raise MemoryLimitError("A rank would need too much memory.", one[0].bytes)
            if len(found) == count and one[:2] > found[-1][:2]:
                continue
            check(way)
        except MemoryLimitError as error:
            too_large.append(error.needs)
            continue
        except (ModelError, ScheduleError) as error:
            refused[str(error)] += 1
            continue
        bisect.insort(found, one, key=lambda one: one[:2])
        del found[count:]
    pairs = tuple((way, judged) for judged, _, way in found)
    large = len(too_large), min(too_large, default=0.0)
    return Best(pairs, there_are, len(looked_at), large, dict(refused))
