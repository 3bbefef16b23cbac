"""What a person says about a pipeline: each option declared once, as a field of :class:`Pipeline`.

From these come its checks, and the arguments of ``%%tnt_fit`` and ``%tnt_plan`` with their help and
completion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from tnt_notebook.errors import MeshError, ScheduleError
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.plan.family import Maker
from tnt_notebook.plan.hints import layouts_of, memory_of
from tnt_notebook.plan.mesh import DATA, STAGE, Mesh
from tnt_notebook.sizes import parsed_size
from tnt_notebook.words import ranks as counted

#: What lies on neighbouring ranks: the stages of a pipeline, or the replicas of a stage.
Neighbours = Literal["pipeline", "replicas"]

_OF_ANY_STAGES = " or ".join(name for name, family in FAMILIES.items() if family.any_stages)


def _names(text: str) -> list[str]:
    return text.split(",")


def typed(flag: str = "", **argument: Any) -> dict[str, Any]:
    """How a field is typed in the notebook: its flag, by default ``--`` and its name, and what
    argparse takes of it."""
    return {"flag": flag, "argument": argument}


@dataclass(frozen=True)
class Pipeline:
    """Trains a model cut into stages, each on a rank of its own.

    Args:
        stages: ranks in a pipeline. With more ranks there are several pipelines, which share the
            data: 8 ranks and ``stages=2`` are 4 replicas.
        micro_batches: how many parts a replica's share of a batch goes through the stages in.
        schedule: a name in ``tnt_notebook.plan.FAMILIES``, such as ``"1f1b"``, or a function
            ``(ranks, micro_batches, stages_per_rank) -> Schedule``.
        stages_per_rank: parts of the model that each rank has; default: as the schedule has them,
            most of them 1.
        cut_at: names of the layers that begin a stage, one less than there are parts of the model;
            default: at the model's ``tnt.keras.layers.SplitLayer``; without them, where the slowest
            stage is fastest.
        recompute: keeps only the inputs of a stage, and computes activations again in backward:
            less memory, more time.
        placement: ``"pipeline"`` puts the stages of a pipeline on neighbouring ranks, and so on a
            node where they fit; ``"replicas"`` the replicas of a stage.
        memory_limit: what a rank may need for the model, in bytes or as ``"4GB"``; a cut is found
            that keeps to it. Default: no limit.
    """

    stages: int = field(
        metadata=typed(
            "--pipeline", type=int, metavar="P", help="cut the model into stages on P ranks"
        )
    )
    micro_batches: int = field(
        default=8, metadata=typed(type=int, metavar="M", help="parts of each batch (default: 8)")
    )
    schedule: str | Maker = field(
        default="1f1b",
        metadata=typed(choices=tuple(FAMILIES), help="order of work (default: 1f1b)"),
    )
    stages_per_rank: int | None = field(
        default=None,
        metadata=typed(
            type=int,
            metavar="V",
            help=f"parts of the model per rank, with {_OF_ANY_STAGES} (default: the usual number)",
        ),
    )
    cut_at: Sequence[str] | Literal["auto"] = field(
        default="auto",
        metadata=typed(
            type=_names, metavar="LAYERS", help="layers that begin a stage: conv3,conv5"
        ),
    )
    recompute: bool = field(
        default=False,
        metadata=typed(action="store_true", help="recompute activations, to save memory"),
    )
    placement: Neighbours = field(
        default="pipeline",
        metadata=typed(
            choices=get_args(Neighbours),
            help="neighbouring ranks: the stages of a pipeline (default), or replicas of a stage",
        ),
    )
    memory_limit: int | str | None = field(
        default=None,
        metadata=typed(
            type=parsed_size,
            metavar="X",
            help="memory limit of a rank, as in 4GB, for cut, layouts or plan",
        ),
    )

    def __post_init__(self) -> None:
        if self.stages < 1 or self.micro_batches < 1:
            raise ScheduleError(
                "A pipeline has at least one stage and one micro-batch, not "
                f"{self.stages} and {self.micro_batches}."
            )
        if self.placement not in get_args(Neighbours):
            raise ScheduleError(f"placement is 'pipeline' or 'replicas', not {self.placement!r}.")
        try:
            memory_of(self.memory_limit)
        except MeshError as error:
            raise ScheduleError(str(error)) from None

    @property
    def limit_bytes(self) -> float:
        """Bytes that a rank may need; infinite without a limit."""
        return memory_of(self.memory_limit)

    def mesh_of(self, ranks: int, mesh: Mesh | None = None) -> Mesh:
        """The mesh of such pipelines: with an axis ``stage``, and ``data`` for their replicas.

        Args:
            mesh: with the axes along which the layers of each stage are divided; where it has none
                for the stages, they stand before these.

        Raises:
            ScheduleError: the ranks cannot be shared out evenly.
            MeshError: they do not fill the mesh, or it has another number of stages.
        """
        if mesh is not None and STAGE in mesh.names:
            if mesh.along(STAGE) != self.stages:
                raise MeshError(
                    f"The mesh {mesh} has {mesh.along(STAGE)} stages, and the pipeline "
                    f"{self.stages}: give it once."
                )
            if self.placement != "pipeline":
                raise MeshError(
                    f"The order of the axes of the mesh {mesh} already decides which ranks are "
                    "neighbours: leave out the placement of the pipeline."
                )
            return mesh.of(ranks)
        if mesh is None and ranks % self.stages:
            raise ScheduleError(
                f"{counted(ranks)} cannot form pipelines of {self.stages} stages: the number of "
                f"ranks must be a multiple of {self.stages}."
            )
        inner = dict(mesh.axes) if mesh is not None else {}
        data = {DATA: inner.pop(DATA)} if DATA in inner else {}
        along = dict(Mesh(**data, **{STAGE: self.stages}, **inner).of(ranks).axes)
        first = (STAGE, DATA) if self.placement == "replicas" else (DATA, STAGE)
        return Mesh(**{name: along[name] for name in (*first, *inner)})

    def rows_of(self, batch_size: int, replicas: int) -> int:
        """Samples of the largest micro-batch, of a batch that replicas share."""
        return -(-batch_size // (replicas * self.micro_batches))


#: How options are typed, by name: flag, and argument of argparse.
Typed = dict[str, tuple[str, dict[str, Any]]]


def declared(options: Any) -> Typed:
    """How the fields of a dataclass are typed that say it by :func:`typed`."""
    return {
        f.name: (f.metadata["flag"] or f"--{f.name.replace('_', '-')}", f.metadata["argument"])
        for f in fields(options)
        if f.metadata
    }


OPTIONS: Typed = declared(Pipeline)

#: How options of fits are read that plain data say: a pipeline by its keyword arguments, a mesh as
#: it is typed, layouts as :func:`~tnt_notebook.plan.hints.parsed_hints` gives them.
READ: dict[str, Callable[[Any], Any]] = {
    "pipeline": lambda options: Pipeline(**options), "mesh": Mesh.parsed, "layouts": layouts_of,
}  # fmt: skip
