"""``%%tnt_fit``: trains on all ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.choices import EXCHANGES, ON_FAILURE
from tnt_notebook.magics.fit_options import check_ranks, fit_arguments, fit_options
from tnt_notebook.magics.numbering import numbered
from tnt_notebook.magics.progress import noninteractive
from tnt_notebook.magics.session import Session, check_name
from tnt_notebook.magics.syntax import check_syntax


def _listing_exchanges(magic: Callable[..., None]) -> Callable[..., None]:
    """Adds a line for each exchange to what ``?`` shows."""
    rows = [(f"{n}[:{','.join(options)}]", words) for n, (words, options) in EXCHANGES.items()]
    lines = "".join(f"        {name}\n            {words}\n" for name, words in rows)
    magic.__doc__ = f"{(magic.__doc__ or '').rstrip()}\n\n    With --exchange NAME::\n\n{lines}    "
    return magic


@magic_arguments("%tnt_fit")
@argument("--name", default="fit", help="variable that gets the handle (default: fit)")
@argument(
    "--wait",
    action="store_true",
    help="return only when it has ended (always with TNT_NONINTERACTIVE=1)",
)
@argument("--timeout", type=float, metavar="S", help="seconds a rank may keep the others waiting")
@fit_arguments("saves the state of training there at intervals")
@argument(
    "--on-failure",
    choices=ON_FAILURE,
    help="when a rank dies: end the fit (default), continue with the others, or with new ones",
)
@argument(
    "--restarts",
    type=int,
    metavar="N",
    help="how often to continue after ranks have died or their job has ended (default: 3 with "
    "--on-failure, else 0)",
)
@_listing_exchanges
def tnt_fit(session: Session, arguments: Namespace, cell: str) -> None:
    """Runs ordinary Keras code with every fit, evaluate and predict distributed over all ranks.

    Returns at once: the training runs on the ranks, the live view follows it, and the notebook
    stays free. Further cells for the ranks wait until it ends.

    The handle is in the variable ``fit``, or the one that --name sets::

        fit.wait()      # until it ends; raises what the ranks raised
        fit.stop()      # ends it after the current step; so does the notebook's interrupt
        fit.abort()     # ends it at once, whatever the ranks are doing; so does a second interrupt
        fit.history     # loss and metrics by epoch, also while it runs
        fit.model       # the trained Keras model, here in the notebook
        fit.error       # what went wrong, or None
        fit.plot_breakdown()    # where the time of a step went, and what limits it
        fit.trace       # everything that was measured: plot, save("run.json"), to_pandas(), compare

    Examples::

        %%tnt_fit --name digits
        model = keras.Sequential([keras.layers.Dense(10, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x, y, epochs=3, validation_split=0.1)

        %%tnt_fit --pipeline 2 --micro-batches 16 --schedule zb-h1
        ...             # on 8 ranks: 4 replicas of a model that is cut into two stages

        %%tnt_fit --mesh data=2,height=2
        ...             # two replicas; each image is halved between two ranks

        %%tnt_fit --mesh model=2 --layout conv.*:filters=model --layout dense:columns=model
        ...             # these layers as given, the others in the cheapest way

        %%tnt_fit --plan auto
        ...             # in the fastest way that fits into memory, as %tnt_plan finds it

        %%tnt_fit --exchange late:warmup=100
        ...             # gradients are applied one step late, and exchanged in the meantime

        %%tnt_fit --checkpoint run7 --every 300 --restarts 5
        ...             # continues after ranks have died, or the time of a job is over
    """
    check_name(arguments.name)
    options = fit_options(arguments, session.shell.user_ns)
    if arguments.timeout is not None:
        options["timeout"] = arguments.timeout
    goes_on = _going_on(arguments)
    cluster = session.cluster
    check_ranks(options, cluster.ranks)
    check_syntax(cell)
    if said := cluster.survivors:
        print(said)
    cell = numbered("%%tnt_fit", cell)
    fit = cluster.fit(cell, options, title=arguments.name, **goes_on)
    session.follow(fit)
    if arguments.wait or noninteractive():
        fit.wait()


#: Options with which a fit needs all its ranks, and why.
_OF_ALL_RANKS = {
    "stages": "a pipeline needs all its ranks", "mesh": "a mesh needs all its ranks",
    "shares": "shares are of all ranks", "plan": "a plan is for all ranks",
}  # fmt: skip


def _going_on(arguments: Any) -> dict[str, Any]:
    """What happens when ranks die."""
    on_failure, restarts = arguments.on_failure or "stop", arguments.restarts
    if restarts is not None and restarts < 0:
        raise UsageError(f"--restarts must be at least 0, not {restarts}")
    if restarts and arguments.checkpoint is None and on_failure == "stop":
        raise UsageError("--restarts: only with --checkpoint, which it needs to continue from")
    for name, why in _OF_ALL_RANKS.items():
        if on_failure == "shrink" and getattr(arguments, name) is not None:
            raise UsageError(f"--on-failure shrink: {why}; use restart")
    if restarts is None:
        restarts = 0 if on_failure == "stop" else 3
    return {"on_failure": on_failure, "restarts": restarts}
