"""What a plan promises of the fits that use it: shown beside what is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tnt_notebook.plan.best import Way
from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.plan.overheads import company
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.shares import in_words
from tnt_notebook.plan.terms import parts_of
from tnt_notebook.sizes import size
from tnt_notebook.words import ranks as counted

#: Options of a fit that any plan sets; some set the exchange, too.
SET_BY_PLANS = ("pipeline", "mesh", "layouts", "memory_limit", "shares")


@dataclass(frozen=True)
class Promise:
    """How ranks train a model by a plan, and what to expect of it.

    Attributes:
        options: how: keyword arguments of ``tnt_notebook.distributed``, as plain data: a pipeline
            by its own keyword arguments, a mesh as it is typed.
        ranks: that it is for.
        batch_size: samples of a global batch.
        step_s: seconds of a step.
        rank_bytes: that the rank that needs most needs for the model.
        speedup: how many times as fast as one rank, in the fastest way there.
        parts: seconds of a step, as :func:`.terms.parts_of` has them.
        company: which part of the other ranks is at work while one is, in the mean, 0 to 1.
        busy, beside, ranks_key, model_key: that were reckoned with, as of
            :class:`~tnt_notebook.plan.overheads.Overheads`.

    Raises:
        ValueError: a number cannot be.
    """

    options: dict[str, Any]
    ranks: int
    batch_size: int
    step_s: float
    rank_bytes: int
    speedup: float
    parts: dict[str, float] = field(default_factory=dict)
    company: float = 0.0
    busy: float = 1.0
    beside: float = 1.0
    ranks_key: str = ""
    model_key: str = ""

    def __post_init__(self) -> None:
        for name in ("ranks", "batch_size", "step_s", "rank_bytes", "speedup"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, not {value}")

    @classmethod
    def of(cls, plan: PipelinePlan, options: Mapping[str, Any]) -> Promise:
        """What a plan promises.

        Args:
            options: by which it was planned.
        """
        together, made = company(plan.timeline, plan.alike), plan.overheads
        if made.slowness:  # how busy the machine is cannot be told from how fast ranks are
            together = 0.0
        return cls(
            dict(options), plan.ranks * plan.alike, plan.batch_size, plan.step_s,
            max(plan.rank_bytes), plan.speedup, parts_of(plan), together, made.busy, made.beside,
            made.ranks_key, made.model_key,
        )  # fmt: skip

    @property
    def words(self) -> str:
        """How the model is trained and what to expect, in a few words."""
        pipeline, mesh = self.options.get("pipeline"), self.options.get("mesh")
        on, ranks, divided = Mesh.parsed(mesh) if mesh else None, self.ranks, ""
        if on is not None and on.is_divided:
            ranks //= on.along_all(on.inner)
            divided = f" with layers divided along {on.inner_text}"
        how = "whole copies" if pipeline is None else _of_pipeline(pipeline, ranks)
        if shares := self.options.get("shares"):
            how += f" with {in_words(shares)}"
        if exchange := self.options.get("exchange"):
            how += f", {exchange},"
        return (
            f"{how}{divided} on {counted(self.ranks)}, "
            f"{self.speedup:.3g} times one rank: {1e3 * self.step_s:.3g} ms for a step of "
            f"{self.batch_size:,} samples, {size(self.rank_bytes)} of a rank for the model"
        )


def _of_pipeline(pipeline: Mapping[str, Any], ranks: int) -> str:
    """``4 replicas of 2 stages, 8 micro-batches, zb-h1, with recomputation``"""
    stages, micro_batches = pipeline["stages"], pipeline.get("micro_batches", 8)
    words = [f"{ranks // stages} x {stages} stages", f"{micro_batches} micro-batches"]
    if stages == 1:
        words[0] = "whole copies"
    else:
        words.append(str(pipeline.get("schedule", "1f1b")))
    if pipeline.get("recompute"):
        words.append("recomputation")
    return ", ".join(words)


def options_of(way: Way, memory_limit: int | None = None) -> dict[str, Any]:
    """The options of a fit that trains a model so; none of whole copies.

    Args:
        memory_limit: bytes that a rank may need, to which the cut keeps.
    """
    beside = {"mesh": way.mesh, "exchange": way.exchange, "shares": [*way.shares]}
    beside = {name: said for name, said in beside.items() if said}
    if not way.in_parts:
        limit = {"memory_limit": memory_limit} if way.mesh and memory_limit else {}
        return beside | limit
    options = {**way.options, "memory_limit": memory_limit}
    if way.stages == 1:  # which has no order of stages, and no cut that could keep to a limit
        options |= {"schedule": None, "memory_limit": None}
    return beside | {"pipeline": {name: v for name, v in options.items() if v not in (None, False)}}
