"""``%%tnt_fit``: trains on all ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.choices import BATCH_NORM, EXCHANGES, ON_FAILURE, split_exchange
from tnt_notebook.errors import MeshError, ScheduleError
from tnt_notebook.magics.mesh_options import given_layouts, mesh_arguments
from tnt_notebook.magics.numbering import numbered
from tnt_notebook.magics.pipeline import given_pipeline, pipeline_arguments
from tnt_notebook.magics.progress import noninteractive
from tnt_notebook.magics.session import Session, check_name
from tnt_notebook.magics.syntax import check_syntax
from tnt_notebook.plan.mesh import STAGE, Mesh
from tnt_notebook.plan.options import Pipeline

_EXCHANGE = (
    "what ranks do with their gradients (default: allreduce), one of those above, as in "
    "late:warmup=100; or a variable of the ranks that says so"
)


def _listing_exchanges(magic: Callable[..., None]) -> Callable[..., None]:
    """Adds a line for each exchange to what ``?`` shows."""
    rows = [(f"{n}[:{','.join(options)}]", words) for n, (words, options) in EXCHANGES.items()]
    lines = "".join(f"        {name}\n            {words}\n" for name, words in rows)
    magic.__doc__ = f"{(magic.__doc__ or '').rstrip()}\n\n    With --exchange NAME::\n\n{lines}    "
    return magic


@magic_arguments("%tnt_fit")
@argument("--name", default="fit", help="variable that gets the handle (default: fit)")
@argument(
    "--wait", action="store_true", help="return when it has ended (TNT_NONINTERACTIVE=1: always)"
)
@argument("--bucket-mb", type=float, metavar="X", help="MiB of gradients exchanged at a time")
@argument("--exchange", metavar="NAME[:OPTION=VALUE,...]", help=_EXCHANGE)
@argument(
    "--batch-norm",
    choices=BATCH_NORM,
    help="whose samples batch norm takes its statistics of: the rank's (default), or all",
)
@argument("--timeout", type=float, metavar="S", help="seconds a rank may let the others wait")
@pipeline_arguments()
@mesh_arguments
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
@_listing_exchanges
def tnt_fit(session: Session, arguments: Namespace, cell: str) -> None:
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

        %%tnt_fit --mesh data=2,height=2
        ...             # two replicas; halves of each image on two ranks

        %%tnt_fit --mesh model=2 --layout conv.*:filters=model --layout dense:columns=model
        ...             # these layers so, the others as costs least

        %%tnt_fit --exchange late:warmup=100
        ...             # gradients are applied a step late, and exchanged meanwhile

        %%tnt_fit --checkpoint run7 --every 300 --restarts 5
        ...             # goes on after ranks have died, or the time of a job was over
    """
    check_name(arguments.name)
    options: dict[str, Any] = {
        name: value
        for name in ("bucket_mb", "timeout", "exchange", "batch_norm")
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.exchange is not None:
        check_exchange(arguments.exchange, arguments.bucket_mb)
    mesh, beside = _mesh(arguments)
    options |= beside
    if (pipeline := given_pipeline(arguments)) is not None:
        options["pipeline"] = pipeline
    kept, goes_on = _checkpoint(arguments)
    options |= kept
    cluster = session.cluster
    if mesh is not None:
        _check_mesh(mesh, pipeline, cluster.ranks)
        options["mesh"] = str(mesh)
    check_syntax(cell)
    if said := cluster.survivors:
        print(said)
    cell = numbered("%%tnt_fit", cell)
    fit = cluster.fit(cell, options, title=arguments.name, **goes_on)
    session.follow(fit)
    if arguments.wait or noninteractive():
        fit.wait()


def _mesh(arguments: Namespace) -> tuple[Mesh | None, dict[str, Any]]:
    """What --mesh says, and what is said beside it to the ranks; a mesh with stages is that of a
    pipeline, also without --pipeline."""
    layouts = given_layouts(arguments)
    if arguments.mesh is None:
        return None, {}
    try:
        mesh = Mesh.parsed(arguments.mesh)
    except MeshError as error:
        raise UsageError(f"--mesh: {error}") from None
    said: dict[str, Any] = {"layouts": layouts} if layouts else {}
    if STAGE in mesh.names and arguments.stages is None:
        arguments.stages = mesh.along(STAGE)
    if arguments.stages is None and arguments.memory_limit is not None:
        # That of a pipeline is what its cut keeps to.
        said["memory_limit"], arguments.memory_limit = arguments.memory_limit, None
    return mesh, said


def _check_mesh(mesh: Mesh, pipeline: dict[str, Any] | None, ranks: int) -> None:
    try:
        if pipeline is None:
            mesh.of(ranks)
        else:
            Pipeline(**pipeline).mesh_of(ranks, mesh)
    except (MeshError, ScheduleError) as error:
        raise UsageError(f"--mesh: {error}") from None


def check_exchange(text: str, bucket_mb: float | None = None) -> None:
    """Refuses what ``--exchange`` cannot say."""
    name, said = split_exchange(text)
    if bucket_mb is not None:
        raise UsageError(f"--bucket-mb beside --exchange: say --exchange {name}:bucket_mb=...")
    if name not in EXCHANGES:
        if not name.isidentifier():
            raise UsageError(f"--exchange {text!r}: it is one of {', '.join(EXCHANGES)}, or a "
                             "variable of the cells on the ranks")  # fmt: skip
        return
    options = EXCHANGES[name][1]
    for key, value in said.items():
        if key not in options or value is None:
            option = key if value is None else f"{key}={value}"
            takes = ", ".join(f"{one}=..." for one in options)
            raise UsageError(
                f"--exchange {text!r}: {name} has no option {option!r}, it takes {takes}"
            )


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
    if on_failure == "shrink" and arguments.mesh is not None:
        raise UsageError("--on-failure shrink: a mesh needs all its ranks; use restart")
    if restarts is None:
        restarts = 0 if on_failure == "stop" else 3
    goes_on = {"on_failure": on_failure, "restarts": restarts}
    if arguments.checkpoint is None:
        return {}, goes_on
    folder = _folder(arguments.checkpoint)
    resume = {"yes": True, "no": False}.get(arguments.resume)
    return {"checkpoint": {"folder": folder, "every_s": arguments.every, "resume": resume}}, goes_on


def _folder(named: str) -> str:
    try:
        if named.strip():
            return str(Path(named).expanduser().absolute())
    except RuntimeError:  # ~somebody who is not there
        pass
    raise UsageError(f"--checkpoint {named!r}: no folder can have this name")
