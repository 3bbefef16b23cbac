"""The magics: ``%tnt_cluster``, ``%%tnt``, ``%tnt_push``, ``%tnt_pull``, ``%%tnt_fit``,
``%tnt_plan``, ``%tnt_bench`` and ``%tnt_trace``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from tnt_notebook.choices import DTYPES, ON_FAILURE
from tnt_notebook.errors import ClusterError, NoClusterError
from tnt_notebook.magics import cluster as cluster_magic
from tnt_notebook.magics.argument_types import name_list, rank_list
from tnt_notebook.magics.completion import TntCompletion
from tnt_notebook.magics.idle_interrupt import interrupt_reaches
from tnt_notebook.magics.pipeline import given, given_pipeline, pipeline_arguments
from tnt_notebook.magics.plain_errors import plainly
from tnt_notebook.magics.progress import StatusLine, noninteractive
from tnt_notebook.magics.table import links_line, status_table
from tnt_notebook.plan.families import FAMILIES

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tnt_notebook.cluster import Cluster
    from tnt_notebook.telemetry.archive import RunInfo


@magics_class
class TntMagics(Magics):
    """Holds the cluster of this notebook."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self.completion = TntCompletion(shell, self)
        self._cluster: Cluster | None = None
        self._last_run: Path | None = None  # of this notebook
        self._closed = threading.Event()

    def close(self) -> None:
        """Stops the cluster if one runs."""
        self._closed.set()
        self._closed = threading.Event()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()

    @property
    def cluster(self) -> Cluster:
        """The running cluster.

        Raises:
            NoClusterError: there is none; the message says how to start one.
        """
        if self._cluster is None:
            raise NoClusterError("No cluster is running. Start one: %tnt_cluster start -n 4")
        return self._cluster

    @line_magic
    @plainly
    @magic_arguments()
    @argument("action", choices=list(cluster_magic.ACTIONS), help="what to do with a cluster")
    @argument("which", nargs="?", metavar="WHICH", help="logs: a rank; attach, stop: an ID")
    @cluster_magic.start_arguments
    @argument("--dry-run", action="store_true", help="show the script or command, start nothing")
    @argument("--missing", action="store_true", help="restart: only ranks that have died")
    @argument("--force", action="store_true", help="attach: take it from an owner that lives")
    def tnt_cluster(self, line: str) -> None:
        """Starts, watches, finds again and stops the ranks that cells run on.

        The ranks are MPI processes, pinned to cores. They belong to this notebook: when its kernel
        is shut down, they end. When it is restarted, or crashes, they live on for a while, and
        attach brings them back: with their variables, and with the view of a fit that goes on.

        Examples::

            %tnt_cluster start -n 4            # four ranks on this machine
            %tnt_cluster start -n 8 --gpus 4   # two ranks per GPU
            %tnt_cluster start --launcher ssh --hostfile hosts.txt
            %tnt_cluster start --launcher slurm --nodes 2 --per-node 4 --gpus 4 --time 12h
            %tnt_cluster start --launcher slurm -n 8 --dry-run      # the script, and no job
            %tnt_cluster status                # a line for each rank, and how they exchange
            %tnt_cluster logs 2                # what rank 2 wrote, C++ libraries included
            %tnt_cluster restart               # the same again, variables on the ranks are lost
            %tnt_cluster list                  # all clusters of yours
            %tnt_cluster attach                # after a restart of the kernel
            %tnt_cluster detach --keep 8       # leaves it for another notebook
            %tnt_cluster stop
        """
        arguments = parse_argstring(TntMagics.tnt_cluster, line)
        action, which = arguments.action, arguments.which
        options = cluster_magic.given(arguments)
        if action == "start" and arguments.dry_run:
            cluster_magic.plan(options)
        elif action == "start":
            cluster_magic.check_none(self._cluster)
            self._cluster = cluster_magic.start(options, self._shell)
        elif action == "attach":
            cluster_magic.check_none(self._cluster)
            self._attach(which, arguments.force)
        elif action == "list":
            cluster_magic.show_list(None if self._cluster is None else self._cluster.id)
        elif action == "status":
            print(status_table(self.cluster.status()))
            print(links_line(self.cluster.links, self.cluster.ranks))
        elif action == "logs":
            self._logs(which)
        elif action == "restart":
            self._restart(arguments.missing)
        elif action == "detach":
            cluster_magic.detach(self.cluster, options.get("keep"))
            self._cluster = None
        elif which is not None and (self._cluster is None or self._cluster.id != which):
            cluster_magic.stop_other(which)
        else:
            self.cluster  # noqa: B018  says so when there is nothing to stop
            self.close()
            print("cluster stopped")

    def _attach(self, which: str | None, force: bool) -> None:
        self._cluster = cluster_magic.attach(which, force, self._shell)
        if (fit := self._cluster.begun_fit()) is not None:
            self._shell.push({fit.title: fit})
            self._last_run = fit.folder
            interrupt_reaches(self._shell, fit)

    def _restart(self, missing: bool) -> None:
        progress = StatusLine()
        if missing:
            from tnt_notebook.cluster.recovery import start_missing

            start_missing(self.cluster)
            progress.end(cluster_magic.ready(self.cluster))
            return
        try:
            self.cluster.restart(progress.update)
        except ClusterError:
            self._cluster = None  # it has stopped, and a new one may be started
            raise
        progress.end(cluster_magic.ready(self.cluster))

    def _logs(self, which: str | None) -> None:
        if which is not None and not which.isdecimal():
            raise UsageError(f"logs takes a rank, and not {which!r}")
        for one in range(self.cluster.ranks) if which is None else [int(which)]:
            log = self.cluster.logs(one)
            print(f"--- rank {one} ---\n{log}" if log else f"--- rank {one} --- (empty)")

    @cell_magic
    @plainly
    @magic_arguments("%tnt")
    @argument("--ranks", type=rank_list, metavar="R", help="where: 0,2-3 (without it everywhere)")
    def tnt(self, line: str, cell: str) -> None:
        """Runs the cell on the ranks, and shows their output while it runs.

        Lines come in rank order, identical ones once ("ranks 0-3: ..."). When a rank raises, the
        others are freed, and the error is raised here. Interrupt reaches the ranks.

        Examples::

            %%tnt
            import tnt_notebook as tnt
            print(tnt.world().rank)

            %%tnt --ranks 0,2-3
            x = 1
        """
        arguments = parse_argstring(TntMagics.tnt, line)
        self.cluster.run(cell, arguments.ranks, report=print)

    @line_magic
    @plainly
    @magic_arguments()
    @argument("names", nargs="+", metavar="NAME", help="variables of this notebook")
    def tnt_push(self, line: str) -> None:
        """Copies variables of the notebook to all ranks.

        Examples::

            %tnt_push images labels
        """
        names = parse_argstring(TntMagics.tnt_push, line).names
        missing = [name for name in names if name not in self._shell.user_ns]
        if missing:
            raise UsageError(f"not defined in this notebook: {', '.join(missing)}")
        self.cluster.push({name: self._shell.user_ns[name] for name in names})

    @line_magic
    @plainly
    @magic_arguments()
    @argument("names", nargs="+", metavar="NAME", help="variables of the ranks' cells")
    @argument("--rank", type=int, default=0, metavar="R", help="whose (rank 0 without it)")
    def tnt_pull(self, line: str) -> None:
        """Copies variables of a rank into the notebook.

        A Keras History comes without its model: ``history.history`` has the numbers.

        Examples::

            %tnt_pull history
            %tnt_pull x y --rank 2
        """
        arguments = parse_argstring(TntMagics.tnt_pull, line)
        values = {name: self.cluster.pull(name, arguments.rank) for name in arguments.names}
        self._shell.push(values)

    @cell_magic
    @plainly
    @magic_arguments("%tnt_fit")
    @argument("--name", default="fit", help="variable that gets the handle (default: fit)")
    @argument(
        "--wait",
        action="store_true",
        help="return when it has ended (TNT_NONINTERACTIVE=1: always)",
    )
    @argument("--bucket-mb", type=float, metavar="X", help="MiB of gradients exchanged at a time")
    @argument("--timeout", type=float, metavar="S", help="seconds a rank may let the others wait")
    @pipeline_arguments()
    @argument("--checkpoint", metavar="DIR", help="keeps the state of training there now and then")
    @argument("--every", type=float, metavar="S", help="seconds between two (default: 600)")
    @argument(
        "--resume",
        choices=["auto", "yes", "no"],
        help="what to do with what DIR holds: go on if it is of this cell and has not ended (auto, "
        "default), go on in any case, or begin anew",
    )
    @argument(
        "--on-failure",
        choices=ON_FAILURE,
        help="when a rank dies: end the fit (default), go on with the others, or with new ones",
    )
    @argument(
        "--restarts",
        type=int,
        metavar="N",
        help="how often to go on after ranks have died or their job has ended (default: 3 with "
        "--on-failure, else 0)",
    )
    def tnt_fit(self, line: str, cell: str) -> None:
        """Runs ordinary Keras code with every fit, evaluate and predict distributed over all ranks.

        Returns at once: training goes on in the ranks, the live view follows it, and the notebook
        stays free. Cells for the ranks wait until it ends.

        The handle is in the variable ``fit``, or what --name says::

            fit.wait()      # until it ends; raises what the ranks raised
            fit.stop()      # ends it after the current step; so does the notebook's interrupt
            fit.abort()     # ends it at once, wherever ranks are; so does a second interrupt
            fit.history     # loss and metrics by epoch, also while it runs
            fit.model       # the trained Keras model, here in the notebook
            fit.error       # what went wrong, or None
            fit.plot_breakdown()    # where the time of a step went, and what limits it
            fit.trace       # all that was measured: plot, save("run.json"), to_pandas(), compare

        Examples::

            %%tnt_fit --name digits
            model = keras.Sequential([keras.layers.Dense(10, activation="softmax")])
            model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
            model.fit(x, y, epochs=3, validation_split=0.1)

            %%tnt_fit --pipeline 2 --micro-batches 16 --schedule zb-h1
            ...             # on 8 ranks: 4 replicas of a model that is cut in two

            %%tnt_fit --checkpoint run7 --every 300 --restarts 5
            ...             # goes on after ranks have died, or the time of a job was over
        """
        arguments = parse_argstring(TntMagics.tnt_fit, line)
        _check_name(arguments.name)
        options = {
            name: value
            for name in ("bucket_mb", "timeout")
            if (value := getattr(arguments, name)) is not None
        }
        if (pipeline := given_pipeline(arguments)) is not None:
            options["pipeline"] = pipeline
        kept, goes_on = _checkpoint(arguments)
        options |= kept
        fit = self.cluster.fit(cell, options, title=arguments.name, **goes_on)
        self._shell.push({arguments.name: fit})
        self._last_run = fit.folder
        interrupt_reaches(self._shell, fit)
        if arguments.wait or noninteractive():
            fit.wait()

    @line_magic
    @plainly
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
    @argument("--name", default="plan", help="variable that gets the result (default: plan)")
    def tnt_plan(self, line: str) -> None:
        """Says what to expect of a model in a pipeline, and where it would be cut, before training.

        Rank 0 measures how long each layer takes, once: what it knows it need not measure again. A
        table of the stages and a timeline of a step follow from that. The model is one that a cell
        of %%tnt or %%tnt_fit has made on the ranks. More ranks than there are can be planned for.
        What TensorFlow takes between layers, and the exchange between replicas, are not in it.

        The result is in the variable ``plan``, or what --name says; with --schedule all it is a
        list of them::

            plan.step_s, plan.bubble, plan.samples_per_s, plan.speedup
            plan.stages[0].memory.activations     # bytes
            plan.rank_bytes                       # what each rank needs

        Examples::

            %tnt_plan --pipeline 2 --batch-size 256
            %tnt_plan model --pipeline 4 --micro-batches 16 --schedule zb-h1
            %tnt_plan --pipeline 4 --schedule all --memory-limit 4GB
        """
        from tnt_notebook.magics import plan

        arguments = parse_argstring(TntMagics.tnt_plan, line)
        _check_name(arguments.name)
        if arguments.batch_size < 1:
            raise UsageError(f"--batch-size must be at least 1, not {arguments.batch_size}")
        compares = arguments.schedule == "all"
        if compares and arguments.stages_per_rank is not None:
            raise UsageError("--stages-per-rank goes with one schedule, and not with all")
        options = given(arguments)
        options.setdefault("stages", self.cluster.ranks)
        del options["schedule"]
        schedules = tuple(FAMILIES) if compares else (arguments.schedule,)
        plans = plan.run(self.cluster, arguments.model, options, schedules, arguments.batch_size)
        self._shell.push({arguments.name: plans if compares else plans[0]})

    @line_magic
    @plainly
    @magic_arguments()
    @argument(
        "what",
        choices=["allreduce", "rules"],
        help="allreduce: measure it; rules: show which algorithm is taken when",
    )
    @argument("--max-mb", type=float, metavar="M", help="MB of the largest vector (16 without it)")
    @argument("--dtype", choices=DTYPES, help="of the elements (float32 without it)")
    @argument(
        "--algorithms",
        type=name_list,
        metavar="A",
        help="which: ring,direct (without it all that fit these ranks)",
    )
    @argument(
        "--in-place",
        action="store_true",
        help="in memory that the ranks of a node share, rather than from one array into another",
    )
    @argument("--rounds", type=int, metavar="N", help="turns of each algorithm (21 without it)")
    @argument(
        "--save",
        action="store_true",
        help="keep the fastest as rules for as many ranks, now and whenever ranks are started",
    )
    @argument("--name", default="bench", help="variable that gets the result (default: bench)")
    def tnt_bench(self, line: str) -> None:
        """Measures how fast the ranks exchange: all algorithms, in interleaved rounds, by size.

        Shows times, bandwidth, the limit, and which algorithm is the fastest where. Interrupt ends
        it and leaves what was measured.

        The result is in the variable ``bench``, or what --name says::

            bench.rows      # a dict for each algorithm and size: bytes, median_s, ...
            bench.best      # the fastest algorithm by size
            bench.fits      # latency and rate of each algorithm
            bench.figure    # the figure, for plotly

        Examples::

            %tnt_bench allreduce
            %tnt_bench allreduce --max-mb 64 --algorithms ring,direct --in-place
            %tnt_bench allreduce --save    # the ranks take the fastest from now on
            %tnt_bench rules               # which algorithm is taken when
        """
        from tnt_notebook.magics import bench

        arguments = parse_argstring(TntMagics.tnt_bench, line)
        if arguments.what == "rules":
            if line.split() != ["rules"]:
                raise UsageError("rules takes no options: %tnt_bench rules")
            bench.show_rules(self.cluster)
            return
        _check_name(arguments.name)
        asked = ("dtype", "algorithms", "in_place", "rounds")
        question = {name: v for name in asked if (v := getattr(arguments, name)) is not None}
        if arguments.max_mb is not None:
            if not 0 < arguments.max_mb < 2**20:
                raise UsageError(
                    f"--max-mb {arguments.max_mb:g}: the largest vector has 1 KB or more"
                )
            question["max_bytes"] = int(arguments.max_mb * 2**20)
        try:
            result = bench.run(self.cluster, question)
        except bench.Interrupted as interrupted:
            self._shell.push({arguments.name: interrupted.bench})
            raise
        self._shell.push({arguments.name: result})
        if arguments.save:
            print(bench.save(self.cluster, result))

    @line_magic
    @plainly
    @magic_arguments()
    @argument(
        "action",
        choices=["list", "show", "export", "compare", "remove"],
        help="what to do with runs that are kept",
    )
    @argument(
        "runs",
        nargs="*",
        metavar="ID",
        help="which: as the list shows it, a part of that, or last (without it: the last run of"
        " this notebook, else the latest)",
    )
    @argument("--to", type=Path, metavar="FILE", help="for export: run.json, or run.csv")
    @argument("--all", action="store_true", help="for list and remove: all runs")
    @argument("--name", default="trace", help="variable that gets the result (default: trace)")
    def tnt_trace(self, line: str) -> None:
        """Lists, shows, exports and compares runs: each %%tnt_fit keeps its own on disk while it
        trains, where it outlives ranks and kernel.

        show: summary and figure; a run that still goes on, of this notebook before its kernel was
        restarted or of another one, is followed to its end. export: for https://ui.perfetto.dev, or
        a table. Runs are removed with remove, and the oldest when all together pass 512 MB.

        The run is in the variable ``trace``, or what --name says; of compare, a list::

            trace.plot_timeline()       # the last step; also plot_throughput, plot_breakdown
            trace.to_pandas()           # a row for each box of the steps that were looked at
            trace.save("run.json")

        Examples::

            %tnt_trace list
            %tnt_trace show
            %tnt_trace show 20261121-1930
            %tnt_trace export last --to run.json
            %tnt_trace compare a1b2 c3d4
            %tnt_trace remove a1b2
        """
        from tnt_notebook.magics import trace
        from tnt_notebook.telemetry import archive

        arguments = parse_argstring(TntMagics.tnt_trace, line)
        _check_name(arguments.name)
        action, names = arguments.action, arguments.runs
        if arguments.to is not None and action != "export":
            raise UsageError("--to goes with export only")
        if arguments.all and (action not in ("list", "remove") or names):
            raise UsageError("--all goes with list and remove, and no ID")
        most = {"list": 0, "show": 1, "export": 1}.get(action, len(names))
        if len(names) > most:
            raise UsageError(f"{action} takes no more: {' '.join(names[most:])} is too much")
        if action == "compare" and len(names) < 2:
            raise UsageError("compare needs two runs: %tnt_trace compare ID1 ID2")
        if action == "remove" and not names and not arguments.all:
            raise UsageError("remove needs to know which: %tnt_trace remove ID, or --all")
        if action == "list":
            trace.show_list(arguments.all)
        elif action == "remove":
            trace.remove([archive.find(n) for n in names] if names else archive.ended())
        else:
            runs = [archive.find(name) for name in names] or [self._latest_run()]
            if action == "show":
                result: Any = trace.show(runs[0], self._closed)
            elif action == "export":
                result = trace.export(runs[0], arguments.to)
            else:
                result = trace.compare(runs)
            self._shell.push({arguments.name: result})

    def _latest_run(self) -> RunInfo:
        from tnt_notebook.telemetry import archive

        own = archive.about(self._last_run) if self._last_run else None
        return own or archive.find()


def _check_name(name: str) -> None:
    if not name.isidentifier():
        raise UsageError(f"--name {name}: a variable cannot have this name")


def _checkpoint(arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What --checkpoint and its like say: to the ranks, and to what happens when they die."""
    on_failure, restarts = arguments.on_failure or "stop", arguments.restarts
    if arguments.checkpoint is None:
        for name in ("every", "resume"):
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name}: only with --checkpoint, which says where")
    if restarts is not None and restarts < 0:
        raise UsageError(f"--restarts must be at least 0, not {restarts}")
    if restarts and arguments.checkpoint is None and on_failure == "stop":
        raise UsageError("--restarts: only with --checkpoint, which says from where to go on")
    if on_failure == "shrink" and arguments.stages is not None:
        raise UsageError("--on-failure shrink: a pipeline needs all its ranks; use restart")
    if restarts is None:
        restarts = 0 if on_failure == "stop" else 3
    goes_on = {"on_failure": on_failure, "restarts": restarts}
    if arguments.checkpoint is None:
        return {}, goes_on
    folder = str(Path(arguments.checkpoint).expanduser().absolute())
    resume = {"yes": True, "no": False}.get(arguments.resume)
    return {"checkpoint": {"folder": folder, "every_s": arguments.every, "resume": resume}}, goes_on
