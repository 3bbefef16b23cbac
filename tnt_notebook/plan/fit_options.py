"""How fits are distributed over the ranks: each option declared once, as a field of
:class:`FitOptions`.

From these come their checks, the keyword arguments of ``tnt.Model`` and ``tnt.distributed`` with
their documentation, and the arguments of ``%%tnt_fit``, ``%%tnt_sweep`` and ``%tnt_bench training``
with their help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from tnt_notebook.choices import TRACKERS
from tnt_notebook.errors import MeshError, ScheduleError
from tnt_notebook.plan import saved_plans, shares
from tnt_notebook.plan.hints import WAYS, memory_of
from tnt_notebook.plan.mesh import DATA, STAGE, Layouts, Mesh
from tnt_notebook.plan.options import OPTIONS, READ, Pipeline, declared, typed
from tnt_notebook.plan.promise import SET_BY_PLANS, Promise
from tnt_notebook.plan.track import Track
from tnt_notebook.words import number
from tnt_notebook.words import ranks as counted

#: Whose samples the statistics of batch norm are of.
BatchNorm = Literal["rank", "whole"]
#: What happens when a loss is NaN.
OnNan = Literal["stop", "go-on"]

#: The plan that is looked for at the first fit of a model.
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How fits are distributed over the ranks; without options, all of them train whole copies.

    Args:
        exchange: what ranks do with their gradients: a name with options, as ``"late:steps=1"``,
            an :class:`~tnt_notebook.parallel.exchange.Exchange`, or a function. Default: allreduce.
        bucket_mb: size of a bucket of gradients in MiB, for the default exchange.
        shares: how large the part of a batch is that each replica trains, one beside the other, in
            whole numbers: ``(3, 1)`` where the first rank is three times as fast as the second.
            Default: equal parts; with ``plan="auto"``, as large as ranks are fast.
        batch_norm: whose samples the statistics of ``BatchNormalization`` are of in training:
            those of the ``"rank"``, or of the ``"whole"`` batch, as on one process, which costs two
            messages a layer. Layers with ``synchronized=True`` have the latter in any case.
        on_nan: what happens when a loss is NaN, and weights are NaN or infinite: training ends
            (``"stop"``), or goes on, as in Keras (``"go-on"``). It is said in any case.
        track: where figures of fits are logged, from rank 0: ``"tensorboard"``, ``"wandb"`` or
            ``"mlflow"``, with a folder as in ``"mlflow:results"``, several with commas between.
        pipeline: cuts models into stages, each on a rank of its own; see ``tnt.Pipeline``.
        mesh: divides the work inside layers along its axes; see ``tnt.Mesh``.
        layouts: how layers are divided, by a regular expression for their names; see
            ``tnt.Split``. Default: the cheapest layouts found.
        memory_limit: what a rank of a mesh may need for the model, in bytes or as ``"4GB"``;
            layouts are found that keep to it. Default: no limit. With ``plan="auto"``, what a plan
            may need; default: a rank's share of the memory of its host.
        plan: trains as a plan says, which sets the pipeline: ``"auto"`` looks for the best at a
            model's first ``fit``; the name of a file is one that ``plan.save`` of ``%tnt_plan``
            wrote.
    """

    exchange: Any = field(
        default=None,
        metadata=typed(
            metavar="NAME[:OPTION=VALUE,...]",
            help="what ranks do with their gradients (default: allreduce): one of the exchanges "
            "that %%%%tnt_fit? lists, as in late:warmup=100, or a variable on the ranks that holds "
            "one",
        ),
    )
    bucket_mb: float | None = field(
        default=None,
        metadata=typed(type=float, metavar="X", help="MiB of gradients exchanged at a time"),
    )
    shares: tuple[int, ...] | None = field(
        default=None,
        metadata=typed(
            metavar="N,N,...",
            help="parts of each batch that replicas train, as in 3,1 (default: equal)",
        ),
    )
    batch_norm: BatchNorm = field(
        default="rank",
        metadata=typed(
            choices=get_args(BatchNorm),
            help="batch-norm statistics of the rank's samples (default) or the batch's",
        ),
    )
    on_nan: OnNan = field(
        default="stop",
        metadata=typed(
            choices=get_args(OnNan),
            help="when loss and weights are NaN: end training (default), or go on",
        ),
    )
    track: str | Track | None = field(
        default=None,
        metadata=typed(
            metavar="TRACKER[:DIR],...",
            help=f"log loss, metrics and figures to {', '.join(TRACKERS)}",
        ),
    )
    pipeline: Pipeline | None = None
    mesh: Mesh | None = field(
        default=None,
        metadata=typed(
            metavar="AXIS=N,...",
            help="ranks along named axes: data divides batches, stage cuts the model into stages, "
            "depth, height and width divide samples in space, any other axis the work of layers, "
            "in the cheapest way found; data may be left out",
        ),
    )
    layouts: Layouts | None = field(
        default=None,
        metadata=typed(
            "--layout",
            action="append",
            metavar="LAYERS:WAY=AXIS,...",
            help="how to divide the layers whose names match a regular expression, as in "
            f"'conv.*:filters=model'; ways are {', '.join(WAYS)}; repeat it for more",
        ),
    )
    memory_limit: int | str | None = None
    plan: str | Promise | None = field(
        default=None,
        metadata=typed(
            metavar="auto|NAME|FILE",
            help="train by a plan: the best found (auto), a variable, or a file",
        ),
    )

    def __post_init__(self) -> None:
        if isinstance(self.plan, str) and self.plan != AUTO:
            object.__setattr__(self, "plan", saved_plans.promised(Path(self.plan)))
        if self.shares is not None:
            object.__setattr__(self, "shares", shares.checked(self.shares))
        self._follow_plan()
        if self.batch_norm not in get_args(BatchNorm):
            raise ValueError(f"batch_norm is 'rank' or 'whole', not {self.batch_norm!r}")
        if self.on_nan not in get_args(OnNan):
            raise ValueError(f"on_nan is 'stop' or 'go-on', not {self.on_nan!r}")
        if self.track is not None:
            object.__setattr__(self, "track", Track.of(self.track))
        if self.exchange is not None and self.bucket_mb is not None:
            raise ValueError(
                "bucket_mb is for the default exchange; others take it as an option, as in "
                "late:bucket_mb=4. Give one of exchange, bucket_mb."
            )
        if self.layouts and self.mesh is None:
            raise MeshError("layouts needs a mesh: add one, as in mesh=tnt.Mesh(model=2).")
        divides = self.mesh is not None and self.pipeline is None
        if self.memory_limit is not None and not divides and self.plan != AUTO:
            raise MeshError(
                "memory_limit needs a mesh: add one, as in mesh=tnt.Mesh(model=2); for a pipeline "
                "it is an option of tnt.Pipeline."
            )
        memory_of(self.memory_limit)  # says what is no size
        if self.pipeline is None and self.mesh is not None and STAGE in self.mesh.names:
            stages = Pipeline(self.mesh.along(STAGE), memory_limit=self.memory_limit)
            object.__setattr__(self, "pipeline", stages)
            object.__setattr__(self, "memory_limit", None)  # that is what its cut keeps to

    def _follow_plan(self) -> None:
        """Takes from a plan what it sets."""
        if self.plan is None:
            return
        by_plan = FitOptions() if isinstance(self.plan, str) else FitOptions.of(self.plan.options)
        for name in SET_BY_PLANS:
            given, sets = getattr(self, name), getattr(by_plan, name)
            if name == "memory_limit" and self.plan == AUTO:
                continue
            if given and given != sets:
                raise ValueError(
                    f"{name} is set by the plan: leave it out, or leave out plan={_said(self.plan)}"
                )
            object.__setattr__(self, name, sets)
        if by_plan.exchange is not None:
            if self.exchange not in (None, by_plan.exchange) or self.bucket_mb is not None:
                raise ValueError(
                    f"The plan is for the exchange {by_plan.exchange}: leave out exchange and "
                    f"bucket_mb, or plan={_said(self.plan)}"
                )
            object.__setattr__(self, "exchange", by_plan.exchange)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> FitOptions:
        """What plain data says: a pipeline by its keyword arguments, a mesh as it is typed, layouts
        as :func:`~tnt_notebook.plan.hints.parsed_hints` gives them; what else is there is left.

        Raises:
            MeshError, ScheduleError, ValueError: it cannot be.
        """
        said = {f.name: data[f.name] for f in fields(cls) if data.get(f.name) is not None}
        for name, read in _READ.items():
            if name in said:
                said[name] = read(said[name])
        return cls(**said)

    def mesh_of(self, ranks: int) -> Mesh | None:
        """The mesh on which so many ranks run a fit; None: all have the whole model.

        Raises:
            MeshError, ScheduleError: the ranks do not fill it, or are not as many as were planned
                for.
        """
        if isinstance(self.plan, Promise) and self.plan.ranks != ranks:
            raise ScheduleError(
                f"The plan is for {counted(self.plan.ranks)}, and there "
                f"{number(ranks, 'is', 'are')} {ranks}. Plan for as many: %tnt_plan --ranks {ranks}"
            )
        if self.pipeline is not None:
            made: Mesh | None = self.pipeline.mesh_of(ranks, self.mesh)
        else:
            made = None if self.mesh is None else self.mesh.of(ranks)
        replicas = ranks if made is None else made.along(DATA)
        if self.shares is not None and len(self.shares) != replicas:
            raise MeshError(
                f"A batch is shared by {replicas} {number(replicas, 'replica', 'replicas')} of the "
                f"model here, and shares has {len(self.shares)}: {self.shares}. Give as many."
            )
        return made


_READ: dict[str, Callable[[Any], Any]] = {
    **READ,
    "shares": shares.checked,
    "plan": lambda plan: plan if isinstance(plan, str) else Promise(**plan),
}

#: Those that are typed; of a pipeline, see ``tnt_notebook.plan.options.OPTIONS``.
TYPED = declared(FitOptions)


def typed_so(options: Mapping[str, Any]) -> list[str]:
    """What to type for such options, as :meth:`FitOptions.of` takes them."""
    plan = options.get("plan")
    said = {**options, **(plan["options"] if isinstance(plan, dict) else {})}
    said = {**said, **said.get("pipeline", {})}
    words = []
    for name, (flag, _) in {**TYPED, **OPTIONS}.items():
        if name == "layouts":
            for layers, ways in said.get(name, {}).items():
                axes = ",".join(f"{way}={axis}" for way, axis in ways.items())
                words.append(f"{flag} {layers}:{axes}")
        elif (value := said.get(name)) not in (None, False) and not isinstance(value, dict):
            typed = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            words.append(flag if value is True else f"{flag} {typed}")
    return words


_HERE = "        options: of :class:`FitOptions`.\n"


def _said(plan: str | Promise) -> str:
    return repr(plan) if isinstance(plan, str) else "..."


def takes_fit_options(taker: Any) -> Any:
    """Decorates what takes them as keyword arguments, ``**options``: signature and docstring tell
    of each. The docstring has a line ``options: of :class:`FitOptions`.`` where they belong."""
    signature = inspect.signature(taker)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = inspect.signature(FitOptions).parameters.values()
    taker.__signature__ = signature.replace(parameters=[*own, *options])
    _, _, about = (FitOptions.__doc__ or "").partition("Args:\n")
    assert _HERE in taker.__doc__
    taker.__doc__ = taker.__doc__.replace(_HERE, f"{about.rstrip()}\n")
    return taker
