"""``%%tnt_sweep``: a cell with many settings, on parts of the cluster at once."""

from __future__ import annotations

import argparse
import ast
import math
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.magics.fit_options import check_ranks, fit_arguments, fit_options
from tnt_notebook.magics.numbering import numbered
from tnt_notebook.magics.progress import noninteractive
from tnt_notebook.magics.session import Session, check_name
from tnt_notebook.magics.settings import check_used, setting, space_of
from tnt_notebook.magics.syntax import check_syntax
from tnt_notebook.sweep.space import PRUNERS, SAMPLERS, Objective, Task

_TRIALS = 20
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def duration(text: str) -> float:
    """Parses ``90``, ``90s``, ``10m`` or ``1.5h`` into seconds; for use as an argparse type."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 90s, 10m or 1.5h")
    return seconds


@magic_arguments("%tnt_sweep")
@argument(
    "settings",
    nargs="+",
    type=setting,
    metavar="NAME=VALUES",
    help="variables set before the cell runs: width=64|128, layers=1..4, dropout=0..0.5:0.1, "
    "rate=log(1e-4,1e-1)",
)
@argument("--each", type=int, default=1, metavar="R", help="ranks per trial (default: 1)")
@argument("--trials", type=int, metavar="N", help=f"how many (default: {_TRIALS}; for a grid, all)")
@argument(
    "--objective",
    metavar="METRIC[:max|min]",
    help="what trials are judged by, from the history of the cell's last fit (default: "
    "val_loss:min)",
)
@argument(
    "--epoch", choices=["last", "best"], default="last", help="epoch that counts (default: last)"
)
@argument(
    "--value",
    metavar="EXPRESSION",
    help="use as the objective instead: a variable of the cell, or an expression of its names, "
    "evaluated after the cell has run",
)
@argument(
    "--sampler", choices=[*SAMPLERS], default="tpe", help="how settings are chosen (default: tpe)"
)
@argument(
    "--pruner", choices=[*PRUNERS], default="none", help="which trials end early (default: none)"
)
@argument("--seed", type=int, metavar="N", help="seed of the sampler")
@argument("--timeout", type=duration, metavar="T", help="ends the sweep after 90s, 10m or 1.5h")
@argument("--study", metavar="FILE", help="keeps the study there, and continues what it holds")
@fit_arguments("saves the state of each trial there at intervals, in a separate folder")
@argument("--name", default="sweep", help="variable that gets the handle (default: sweep)")
@argument(
    "--wait",
    action="store_true",
    help="return only when it has ended (always with TNT_NONINTERACTIVE=1)",
)
def tnt_sweep(session: Session, arguments: Namespace, cell: str) -> None:
    """Runs ordinary Keras code repeatedly with different settings, several trials at a time, each
    distributed over a part of the ranks; Optuna chooses the settings.

    Returns at once: the trials run on the ranks; the live view has a row for each, and buttons that
    stop one or all. Settings are variables that are set before the cell runs. A trial leaves no
    variables on the ranks. A rank that dies fails only its own trial.

    The handle is in the variable ``sweep``, or the one that --name sets::

        sweep.best      # the best trial so far: .settings, .value, .number
        sweep.frame()   # all trials, for pandas
        sweep.figure()  # parallel coordinates, for plotly
        sweep.stop(3)   # ends trial 3 after its current step; sweep.stop() or an interrupt: all
        sweep.wait()    # until it ends
        sweep.study     # Optuna's study

    Samplers: tpe searches near those that were good so far, random at random; grid tries all
    combinations; cmaes draws from a normal distribution that moves to the best. Pruners end trials
    that are worse than others at the same epoch: median, hyperband, halving.

    Examples::

        %%tnt_sweep rate=log(1e-4,1e-1) width=64|128|256 --each 2 --objective val_accuracy:max
        model = keras.Sequential([keras.layers.Dense(width, "relu"), keras.layers.Dense(10)])
        model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
        model.fit(x, y, epochs=10, validation_split=0.2)

        %%tnt_sweep depth=1..4 dropout=0..0.5:0.1 --sampler grid --pruner median
        ...

        %%tnt_sweep units=64|128 --each 4 --pipeline 2 --exchange late:warmup=100
        ...             # each trial as %%tnt_fit would train it, on 4 ranks

        %%tnt_sweep rate=log(1e-4,1) --value "score(model)" --objective score:max --study a.journal
        ...             # with the same file, it continues where it was
    """
    check_name(arguments.name)
    task = _task(arguments, session.shell.user_ns)
    task.check()
    cluster = session.cluster
    check_syntax(cell)
    check_used(task.space, f"{cell}\n({arguments.value})")
    if said := cluster.survivors:
        print(said)
    sweep = cluster.sweep(numbered("%%tnt_sweep", cell), task, arguments.name)
    session.follow(sweep)
    if arguments.wait or noninteractive():
        sweep.wait()


def _task(arguments: Namespace, variables: Mapping[str, Any]) -> Task:
    space = space_of(arguments.settings)
    if arguments.each < 1:
        raise UsageError(f"--each must be at least 1, not {arguments.each}")
    if arguments.trials is not None and arguments.trials < 1:
        raise UsageError(f"--trials must be at least 1, not {arguments.trials}")
    if arguments.seed is not None and arguments.seed < 0:
        raise UsageError(f"--seed must be at least 0, not {arguments.seed}")
    task = Task(
        space, _objective(arguments), _TRIALS if arguments.trials is None else arguments.trials,
        arguments.each, arguments.sampler, arguments.pruner, arguments.seed, arguments.timeout,
        None if arguments.study is None else _file(arguments.study),
        fit_options(arguments, variables),
    )  # fmt: skip
    check_ranks(task.options, task.each)
    if task.sampler == "grid":
        task.check()
        asked = arguments.trials or task.points()
        return Task(**{**vars(task), "trials": min(asked, task.points())})
    return task


def _objective(arguments: Namespace) -> Objective:
    value: str | None = arguments.value and arguments.value.strip()
    if arguments.value is not None:
        if arguments.objective is None:
            raise UsageError("--value: give it a name, and whether more is better: "
                             "--objective score:max")  # fmt: skip
        if arguments.epoch != "last":
            raise UsageError("--epoch goes with the history, and not with --value")
        try:
            ast.parse(value or "", mode="eval")
        except (SyntaxError, ValueError):
            raise UsageError(f"--value {value!r} is not a Python expression") from None
    said = arguments.objective or "val_loss:min"
    name, colon, way = said.partition(":")
    if not colon and name:
        if "loss" not in name:
            raise UsageError(f"--objective {name}: add whether more is better, {name}:max, or less,"
                             f" {name}:min")  # fmt: skip
        way = "min"
    if not name or way not in ("max", "min"):
        raise UsageError(f"--objective {said}: write METRIC:max or METRIC:min, as val_accuracy:max")
    return Objective(name, way == "max", arguments.epoch == "best", value)


def _file(named: str) -> Path:
    try:
        path = Path(named).expanduser().absolute()
    except RuntimeError:  # ~somebody who is not there
        raise UsageError(f"--study {named!r}: no file can have this name") from None
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--study {named}: write the name of a file, in a folder that is there")
    return path
