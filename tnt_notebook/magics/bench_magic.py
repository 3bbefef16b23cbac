"""``%tnt_bench``: measures what the running ranks can do."""

from __future__ import annotations

from argparse import Namespace

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.choices import DTYPES
from tnt_notebook.magics.bench_actions import ACTIONS
from tnt_notebook.magics.input_options import check_own, input_arguments, question
from tnt_notebook.magics.lists import name_list
from tnt_notebook.magics.session import Session, check_name
from tnt_notebook.magics.training_magic import training, training_arguments
from tnt_notebook.magics.workloads import CELLS


@magic_arguments()
@argument("action", choices=list(ACTIONS), help="what to measure")
@argument(
    "which",
    nargs="?",
    metavar="WHICH",
    help="input: a dataset on the ranks; training: a fit of this notebook (default: the last), "
    f"or one of {', '.join(CELLS)}",
)
@argument("--max-mb", type=float, metavar="M", help="MB of the largest vector (default: 16)")
@argument("--dtype", choices=DTYPES, help="data type (default: float32)")
@argument(
    "--algorithms",
    type=name_list,
    metavar="A",
    help="algorithms: ring,direct (default: all that suit these ranks)",
)
@argument(
    "--in-place",
    action="store_true",
    help="in memory that the ranks of a node share, instead of from one array into another",
)
@argument(
    "--rounds", type=int, metavar="N",
    help="turns of each algorithm (default: 21), or fits on each number of ranks (default: 3)",
)  # fmt: skip
@argument(
    "--save",
    action="store_true",
    help="save the fastest as rules for this number of ranks, now and whenever ranks are started",
)
@training_arguments
@input_arguments
@argument("--name", default="bench", help="variable that gets the result (default: bench)")
def tnt_bench(session: Session, arguments: Namespace, cell: str | None = None) -> None:
    """Measures what the running ranks can do.

    allreduce: how fast they exchange data, by size, with all algorithms in interleaved rounds. It
    shows times, bandwidth, the limit, and which algorithm is fastest at which size. rules: shows
    which algorithm is used when. training: how a cell scales with the number of ranks, compared
    with the plan's prediction; as a cell magic, it is followed by the code to train. Interrupt ends
    a measurement, and keeps what was measured.

    input: samples/s that loaders deliver when all ranks read at the same time: generated images,
    by format, storage (local, and throttled like a file server), parallel calls and prefetch,
    compared with synthetic ones; how many ranks that feeds, what limits it, and what to do. With
    the name of a tf.data.Dataset or PyDataset on the ranks: what it delivers, as fit would read it,
    and where its time goes.

    The result is in the variable ``bench``, or the one that --name sets; for allreduce::

        bench.rows      # a dict for each algorithm and size: bytes, median_s, ...
        bench.best      # the fastest algorithm by size
        bench.fits      # latency and rate of each algorithm
        bench.figure    # the figure, for plotly

    For training::

        bench.rows      # a dict for each number of ranks and mode: efficiency, solution_s, ...
        bench.figure    # throughput, efficiency, where a step goes
        bench.report("scaling.html")    # one file that opens anywhere

    For input, ``bench.rows`` has a dict for each loader: format, storage, calls, prefetch,
    samples_per_s, limit, feeds; for a dataset, ``bench`` is such a dict.

    Examples::

        %tnt_bench allreduce
        %tnt_bench allreduce --max-mb 64 --algorithms ring,direct --in-place
        %tnt_bench allreduce --save    # the ranks use the fastest from now on
        %tnt_bench rules               # which algorithm is used when

        %%tnt_bench training --ranks 1,2,4 --report scaling.html
        model = ...     # ordinary Keras code, as for %%tnt_fit
        model.fit(x, y, batch_size=256, epochs=2)

        %tnt_bench training --ranks 1,2,4               # the cell of the last %%tnt_fit
        %tnt_bench training --ranks 1,2,4 --steps 50 hep_cnn
        %tnt_bench training fit --until val_accuracy=0.9 --strong

        %tnt_bench input
        %tnt_bench input --formats jpeg,tfrecord --latency 2 --bandwidth 200 --need 5000
        %tnt_bench input train         # the dataset of this name, as it is
    """
    if arguments.action == "training":
        training(session, arguments, cell)
        return
    if cell is not None:
        raise UsageError(f"{arguments.action} takes no cell: %tnt_bench {arguments.action}")
    _MEASURES[arguments.action](session, arguments)


def _allreduce(session: Session, arguments: Namespace) -> None:
    from tnt_notebook.magics import bench

    check_name(arguments.name)
    asked = ("dtype", "algorithms", "in_place", "rounds")
    question = {name: v for name in asked if (v := getattr(arguments, name)) is not None}
    if arguments.max_mb is not None:
        if not 0 < arguments.max_mb < 2**20:
            raise UsageError(f"--max-mb {arguments.max_mb:g}: the largest vector has 1 KB or more")
        question["max_bytes"] = int(arguments.max_mb * 2**20)
    try:
        result = bench.run(session.cluster, question)
    except bench.Interrupted as interrupted:
        session.bind(arguments.name, interrupted.bench)
        raise
    session.bind(arguments.name, result)
    if arguments.save:
        print(bench.save(session.cluster, result))


def _input(session: Session, arguments: Namespace) -> None:
    from tnt_notebook.magics import bench_input

    check_name(arguments.name)
    need, need_of = arguments.need, "training needs"
    if arguments.which is not None:
        check_own(arguments)
    else:
        asked = question(arguments)
    cluster = session.cluster
    if need is None:
        need, need_of = bench_input.consumed_by(session.last_fit)
    if arguments.which is not None:
        seconds = arguments.seconds or bench_input.OWN_S
        row = bench_input.run_own(cluster, arguments.which, seconds, need, need_of)
        session.bind(arguments.name, row)
        return
    try:
        result = bench_input.run(cluster, asked, need, need_of)
    except bench_input.Interrupted as interrupted:
        session.bind(arguments.name, interrupted.bench)
        raise
    session.bind(arguments.name, result)


def _rules(session: Session, arguments: Namespace) -> None:
    from tnt_notebook.magics import bench

    bench.show_rules(session.cluster)


#: Of each action.
_MEASURES = {"allreduce": _allreduce, "rules": _rules, "input": _input}
