"""``%tnt_plan``: what to expect of a pipeline or a mesh before training."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.dashboard.reports.plans import Plans
from tnt_notebook.magics.fit_options import check_exchange
from tnt_notebook.magics.mesh_options import given_layouts, planned_mesh
from tnt_notebook.magics.option_tables import arguments_of, given
from tnt_notebook.magics.session import Session, check_name
from tnt_notebook.plan.best import Way
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.plan.fit_options import TYPED
from tnt_notebook.plan.mesh import STAGE, Mesh
from tnt_notebook.plan.options import OPTIONS
from tnt_notebook.plan.promise import options_of

_SCHEDULE = "1f1b"


@magic_arguments()
@argument(
    "model", nargs="?", default="model", help="name of the model on the ranks (default: model)"
)
@arguments_of(
    OPTIONS,
    stages={"help": "ranks in a pipeline (default: all)"},
    schedule={
        "choices": [*FAMILIES, "all"],
        "default": None,
        "help": "order of work (default: 1f1b); all compares them",
    },
    placement=None,
)
@arguments_of(
    {name: TYPED[name] for name in ("exchange", "mesh", "layouts")},
    exchange={
        "help": "what replicas do with their gradients: allreduce, sharded or late, with "
        "options as of %%%%tnt_fit (default: of the best ways, the best one)"
    },
)
@argument("--ranks", type=int, metavar="N", help="plan for this many ranks")
@argument(
    "--network",
    metavar="FILE",
    help="with the best ways: what ranks exchange with, from a file or by a name such as "
    "hdr-4xa100 (default: what is measured among the ranks)",
)
@argument("--batch-size", type=int, default=32, metavar="N", help="samples per batch (default: 32)")
@argument(
    "--input", metavar="DATASET", help="dataset on the ranks: the plan counts what it delivers"
)
@argument("--name", default="plan", help="variable that gets the result (default: plan)")
def tnt_plan(session: Session, arguments: Namespace) -> None:
    """Shows, before training, the best ways to train a model on the ranks; or what to expect of it
    in a pipeline and where it would be cut, or on a mesh and how its layers would be divided.

    Without a pipeline or a mesh, it looks for the best: replicas of pipelines with each schedule,
    numbers of micro-batches, and recomputation, and layers divided along one axis of a mesh, within
    --memory-limit, or a rank's share of the memory of its host. It shows the five fastest, with
    what is typed after %%tnt_fit for each, and how fast the model would train on fewer and on more
    ranks.
    --ranks looks for the best on another number of ranks, and --network on another network: a file
    says, level by level, what ranks exchange with, on a node and between nodes. Some come with the
    package, by name: ethernet-10g, hdr-4xa100, slingshot-11 and others. --exchange plans for an
    exchange that you choose, where it would choose between allreduce and sharded itself.

    Rank 0 measures how long each layer takes alone, and all of them together; all ranks what a step
    takes beside its layers (Keras's loop, the optimizer, messages, beginning a micro-batch), and
    how much longer layers take while all ranks compute. They do so only once: the times are kept. A
    table of the stages and a timeline of a step follow from them. The model is one that a %%tnt or
    %%tnt_fit cell has created on the ranks. You can plan for more ranks than there are. With
    --input, all ranks briefly measure what a dataset delivers, as fit would read it: the plan shows
    which ranks map what, and a step lasts as long as its input takes, if that is longer.

    Fits by plan correct what is known of a model, so that its next plan is nearer, and a line below
    the table says how long steps took on these ranks so far, over what plans had promised.

    With --mesh, it shows for each layer how the work is divided, the layout of the output, what is
    exchanged before the layer, how long it takes on one rank and on the mesh, and how much memory
    a rank needs for it; also which layers all ranks compute in full, and why. The link between
    ranks is measured among the ranks that exist; --ranks plans for another number. With
    --memory-limit, the layouts are chosen to fit. If the mesh has an axis stage, or with
    --pipeline, both are shown: stages whose work is divided along the other axes, and layers, for
    a micro-batch.

    The result is in the variable ``plan``, or the one that --name sets. There may be several, the
    fastest first; without a number it is of the fastest::

        plan.step_s, plan.bubble, plan.samples_per_s, plan.speedup
        plan.stages[0].memory.activations     # bytes
        plan.rank_bytes                       # memory that each rank needs
        plan[1].step_s                        # of the second
        plan.to_dataframe()                   # a row for each
        plan.by_ranks                         # the fastest on fewer and more ranks, as dicts
        plan.explain("bubble")                # or compute, imbalance, messages, exchange, overhead,
                                              # input, memory: where it comes from, what lowers it
        plan.apply()                          # %%tnt_fit with its options, in the next cell
        plan.save("plan.json")                # for %%tnt_fit --plan plan.json

    With --mesh::

        plan.step_s, plan.alone_s, plan.speedup, plan.conversions_s
        plan.layers[0].layout, plan.layers[0].conversions, plan.layers[0].mesh_s
        plan.weights, plan.activations, plan.rank_bytes     # of each rank
        plan.whole                                          # layers that all ranks compute in full
        plan.layouts                                        # with stages: the plan of a micro-batch

    Examples::

        %tnt_plan --batch-size 256
        %tnt_plan --batch-size 8192 --ranks 64 --memory-limit 16GB
        %tnt_plan --batch-size 8192 --ranks 1024 --network hdr-4xa100
        %tnt_plan --batch-size 256 --exchange late
        %tnt_plan --pipeline 2 --batch-size 256
        %tnt_plan model --pipeline 4 --micro-batches 16 --schedule zb-h1
        %tnt_plan --pipeline 4 --schedule all --memory-limit 4GB
        %tnt_plan --pipeline 2 --batch-size 256 --input train
        %tnt_plan --mesh data=2,height=2 --batch-size 8
        %tnt_plan --mesh data=2,stage=2,model=2 --micro-batches 16 --batch-size 256
        %tnt_plan --mesh model=4 --ranks 16 --layout conv.*:filters=model --memory-limit 4GB
    """
    check_name(arguments.name)
    if arguments.batch_size < 1:
        raise UsageError(f"--batch-size must be at least 1, not {arguments.batch_size}")
    layouts = given_layouts(arguments)
    if arguments.exchange is not None:
        check_exchange(arguments.exchange)
    if arguments.network is not None and (arguments.mesh is not None or _names_a_way(arguments)):
        raise UsageError(
            "--network: only where the best way is looked for, not with a pipeline, a mesh or input"
        )
    if arguments.mesh is not None:
        _plan_mesh(session, arguments, layouts)
        return
    if _names_a_way(arguments):
        if arguments.ranks is not None:
            raise UsageError("--ranks: not with a pipeline, whose number --pipeline sets")
        _plan_stages(session, arguments, {}, None)
        return
    from tnt_notebook.magics import best_plan
    from tnt_notebook.plan.network_file import network_of

    ranks = session.cluster.ranks if arguments.ranks is None else arguments.ranks
    if ranks < 1:
        raise UsageError(f"--ranks must be at least 1, not {ranks}")
    network = None if arguments.network is None else network_of(arguments.network)
    plans, by_ranks = best_plan.run(
        session.cluster, arguments.model, ranks, arguments.batch_size, arguments.memory_limit,
        network, arguments.exchange,
    )  # fmt: skip
    ways = [(plan, options_of(Way.of(plan), arguments.memory_limit)) for plan in plans]
    session.bind(arguments.name, Plans(ways, by_ranks))


def _names_a_way(arguments: Namespace) -> bool:
    """Whether a person asks about a pipeline, rather than for the best way."""
    said = set(given(OPTIONS, arguments)) - {"memory_limit"}
    return bool(said) or arguments.input is not None


def _plan_stages(
    session: Session,
    arguments: Namespace,
    layouts: dict[str, dict[str, str]],
    mesh: Mesh | None,
) -> None:
    from tnt_notebook.magics import plan

    compares = arguments.schedule == "all"
    if compares and arguments.stages_per_rank is not None:
        raise UsageError("--stages-per-rank goes with one schedule, and not with all")
    options = given(OPTIONS, arguments)
    options.setdefault("stages", mesh.along(STAGE) if mesh else session.cluster.ranks)
    options.pop("schedule", None)
    schedules = tuple(FAMILIES) if compares else (arguments.schedule or _SCHEDULE,)
    plans = plan.run(
        session.cluster, arguments.model, options, schedules, arguments.batch_size,
        arguments.input, mesh, layouts, arguments.exchange,
    )  # fmt: skip
    divided: dict[str, Any] = {"mesh": str(mesh), "layouts": layouts} if mesh else {}
    if arguments.exchange is not None:
        divided["exchange"] = arguments.exchange
    ways = [
        (plan, {**divided, "pipeline": {**options, "schedule": plan.schedule}}) for plan in plans
    ]
    ways.sort(key=lambda way: (way[0].step_s, max(way[0].rank_bytes)))
    session.bind(arguments.name, Plans(ways))


def _plan_mesh(session: Session, arguments: Namespace, layouts: dict[str, dict[str, str]]) -> None:
    from tnt_notebook.magics import mesh_plan

    if arguments.ranks is not None and arguments.ranks < 1:
        raise UsageError(f"--ranks must be at least 1, not {arguments.ranks}")
    cluster, options = session.cluster, given(OPTIONS, arguments)
    stages = options.get("stages")
    mesh = planned_mesh(arguments.mesh, arguments.ranks, cluster.ranks, stages)
    if STAGE in mesh.names:
        if stages not in (None, mesh.along(STAGE)):
            raise UsageError(
                f"--mesh: the mesh {mesh} has {mesh.along(STAGE)} stages, and --pipeline says "
                f"{stages}; leave one out"
            )
        _plan_stages(session, arguments, layouts, mesh)
        return
    others = set(options) - {"memory_limit"}
    flags = [OPTIONS[name][0] for name in OPTIONS if name in others]
    flags += [f"--{one}" for one in ("input", "exchange") if getattr(arguments, one) is not None]
    if flags:
        raise UsageError(
            f"--mesh: not with {', '.join(flags)}, of a pipeline; that needs an axis stage"
        )
    plan = mesh_plan.run(
        cluster, arguments.model, mesh, layouts, arguments.batch_size, arguments.memory_limit
    )
    session.bind(arguments.name, plan)
