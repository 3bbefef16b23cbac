"""``%tnt_plan``: what to expect of a pipeline before training."""

from __future__ import annotations

from argparse import Namespace

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.magics.pipeline import given, pipeline_arguments
from tnt_notebook.magics.session import Session, check_name
from tnt_notebook.plan.families import FAMILIES


@magic_arguments()
@argument("model", nargs="?", default="model", help="its name on the ranks (default: model)")
@pipeline_arguments(
    stages={"help": "ranks of a pipeline (default: all)"},
    schedule={
        "choices": [*FAMILIES, "all"],
        "default": "1f1b",
        "help": "order of work (default: 1f1b); all: compares them",
    },
    placement=None,
)
@argument("--batch-size", type=int, default=32, metavar="N", help="of a batch (default: 32)")
@argument("--input", metavar="DATASET", help="its name on the ranks: what it delivers counts")
@argument("--name", default="plan", help="variable that gets the result (default: plan)")
def tnt_plan(session: Session, arguments: Namespace) -> None:
    """Says what to expect of a model in a pipeline, and where it would be cut, before training.

    Rank 0 measures how long each layer takes, once: what it knows it need not measure again. A
    table of the stages and a timeline of a step follow from that. The model is one that a cell
    of %%tnt or %%tnt_fit has made on the ranks. More ranks than there are can be planned for.
    What TensorFlow takes between layers, and the exchange between replicas, are not in it.
    With --input all ranks measure for a moment what a dataset delivers, as fit would read it: which
    ranks map what, and a step as long as its input takes, if that is longer.

    The result is in the variable ``plan``, or what --name says; with --schedule all it is a
    list of them::

        plan.step_s, plan.bubble, plan.samples_per_s, plan.speedup
        plan.stages[0].memory.activations     # bytes
        plan.rank_bytes                       # what each rank needs

    Examples::

        %tnt_plan --pipeline 2 --batch-size 256
        %tnt_plan model --pipeline 4 --micro-batches 16 --schedule zb-h1
        %tnt_plan --pipeline 4 --schedule all --memory-limit 4GB
        %tnt_plan --pipeline 2 --batch-size 256 --input train
    """
    from tnt_notebook.magics import plan

    check_name(arguments.name)
    if arguments.batch_size < 1:
        raise UsageError(f"--batch-size must be at least 1, not {arguments.batch_size}")
    compares = arguments.schedule == "all"
    if compares and arguments.stages_per_rank is not None:
        raise UsageError("--stages-per-rank goes with one schedule, and not with all")
    options = given(arguments)
    options.setdefault("stages", session.cluster.ranks)
    del options["schedule"]
    schedules = tuple(FAMILIES) if compares else (arguments.schedule,)
    plans = plan.run(
        session.cluster, arguments.model, options, schedules, arguments.batch_size, arguments.input
    )
    session.bind(arguments.name, plans if compares else plans[0])
