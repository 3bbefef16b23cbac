"""``%tnt_bench training``: how what a cell trains scales; its options, and what they say."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook.magics.fit_options import (
    distribution_arguments,
    distribution_options,
)
from tnt_notebook.magics.lists import rank_list
from tnt_notebook.magics.numbering import numbered
from tnt_notebook.magics.session import Session, check_name
from tnt_notebook.magics.syntax import check_syntax
from tnt_notebook.magics.workloads import CELLS
from tnt_notebook.plan.fit_options import AUTO, typed_so
from tnt_notebook.telemetry.scaling import Measured, Mode, Question, Target

Magic = Callable[..., Any]

_ROUNDS = 3


def target(text: str) -> Target:
    """Parses ``val_accuracy=0.9`` or ``perplexity=20:min``; for use as an argparse type."""
    found = re.fullmatch(r"([^=:]+)=([^=:]+?)(?::(min|max))?", text)
    try:
        value = float(found[2]) if found else None
    except ValueError:
        value = None
    if found is None or value is None:
        raise argparse.ArgumentTypeError(
            f"{text!r}: write METRIC=VALUE, as val_accuracy=0.9, or perplexity=20:min"
        )
    falls = found[3] == "min" if found[3] else "loss" in found[1] or "error" in found[1]
    return Target(found[1], value, maximise=not falls)


def training_arguments(magic: Magic) -> Magic:
    """Declares the options of ``training`` as arguments of a magic."""
    declared = (
        argument(
            "--ranks", type=rank_list, metavar="R",
            help="numbers of ranks: 1,2,4 (default: powers of two, and all)",
        ),
        argument(
            "--strong", action="store_true",
            help="strong scaling, with the same batch for all (default: both)",
        ),
        argument(
            "--weak", action="store_true",
            help="weak scaling, with a batch_size that grows with the ranks (default: both)",
        ),
        argument(
            "--steps", type=int, metavar="N", help="steps of each fit (default: as the cell sets)"
        ),
        argument(
            "--until", type=target, metavar="METRIC=VALUE",
            help="end each fit at val_accuracy=0.9, or perplexity=20:min: the time to solution",
        ),
        argument(
            "--watts", type=float, metavar="W",
            help="watts per rank, to estimate energy where no counter exists",
        ),
        distribution_arguments,
        argument(
            "--report", nargs="?", const="", metavar="FILE",
            help="write an HTML report (without FILE, under a new name)",
        ),
        argument("--force", action="store_true", help="replace an existing report"),
    )  # fmt: skip
    for one in reversed(declared):
        magic = one(magic)
    return magic


def training(session: Session, arguments: Namespace, cell: str | None) -> None:
    """Measures, shows and saves."""
    check_name(arguments.name)
    cluster = session.cluster
    question = _question(arguments, len(cluster.living), session.shell.user_ns)
    path = _path(arguments)
    cell, own = _cell(session, arguments.which, cell)
    question.options.update(_without_plan({**own, **question.options}))
    question.options.pop("plan", None)
    check_syntax(cell)

    from tnt_notebook.cluster.handles import scaling
    from tnt_notebook.dashboard.reports.scaling import Scaling
    from tnt_notebook.magics import bench_training as measuring

    scaling.check(cluster, question)
    if said := cluster.survivors:
        print(said)
    found, command = Measured(question), _command(question, cell)
    try:
        measuring.run(cluster, cell, found, command)
    finally:
        if found.runs:
            bench = Scaling(found, command)
            session.bind(arguments.name, bench)
            if path is not None:
                print(measuring.save(bench, path, arguments.force))


def _without_plan(options: dict[str, Any]) -> dict[str, Any]:
    """With the options of a plan in its place: it is for one number of ranks, and there are
    several."""
    plan = options.pop("plan", None)
    if plan == AUTO:
        raise UsageError(
            f"--plan {AUTO}: not in a study, where it would be another one for each number of "
            "ranks; type the options of one"
        )
    return options if plan is None else {**options, **plan["options"]}


def _question(arguments: Namespace, there: int, variables: Mapping[str, Any]) -> Question:
    ranks = arguments.ranks or _powers(there)
    if ranks[0] < 1:
        raise UsageError("--ranks: how many, 1 or more, as in 1,2,4")
    if len(ranks) < 2:
        raise UsageError(f"--ranks {ranks[0]}: at least two numbers, to compare: 1,2,4")
    for name, least in (("rounds", 1), ("steps", 2)):
        if (value := getattr(arguments, name)) is not None and value < least:
            raise UsageError(f"--{name} must be at least {least}, not {value}")
    if arguments.steps is not None and arguments.until is not None:
        raise UsageError("--steps: not with --until, which already sets when a fit ends")
    if arguments.watts is not None and not 0 < arguments.watts < 1e6:
        raise UsageError(f"--watts {arguments.watts:g}: a rank needs more than 0 watts")
    if arguments.force and arguments.report is None:
        raise UsageError("--force: only with --report")
    modes: list[Mode] = []
    if arguments.strong or not arguments.weak:
        modes.append("strong")
    if arguments.weak or not arguments.strong:
        modes.append("weak")
    return Question(
        tuple(ranks), tuple(modes), arguments.rounds or _ROUNDS, arguments.steps, arguments.until,
        arguments.watts, distribution_options(arguments, variables),
    )  # fmt: skip


def _powers(there: int) -> list[int]:
    """1, 2, 4 and so on, and all that there are."""
    if there < 2:
        raise UsageError("a study needs at least two ranks: %tnt_cluster start -n 4")
    return sorted({there, *(1 << i for i in range(there.bit_length()) if 1 << i <= there)})


def _cell(session: Session, which: str | None, cell: str | None) -> tuple[str, dict[str, Any]]:
    """What to train, and how it was distributed where that was said."""
    if cell is not None and cell.strip():
        if which is not None:
            raise UsageError(f"{which}: the cell has the code, so there is nothing to name")
        return numbered("%%tnt_bench", cell), {}
    from tnt_notebook.cluster import Fit

    known = session.shell.user_ns.get(which) if which else session.last_fit
    if isinstance(known, Fit):
        left = ("checkpoint",)  # of which a study has no use
        return known.cell, {name: v for name, v in known.options.items() if name not in left}
    if which is None:
        raise UsageError(
            "there is no cell to train: begin one with %%tnt_bench training, train one with "
            f"%%tnt_fit before, or name {', '.join(CELLS)}"
        )
    if which not in CELLS:
        raise UsageError(
            f"{which}: name a fit of this notebook, as fit, or one of {', '.join(CELLS)}"
        )
    return CELLS[which], {}


def _path(arguments: Namespace) -> Path | None:
    """Where the report goes.

    Raises:
        UsageError: no file can be written there.
    """
    if arguments.report is None:
        return None
    from tnt_notebook.magics.bench_training import dated

    try:
        path = Path(arguments.report).expanduser().absolute()
    except RuntimeError:  # ~somebody who is not there
        raise UsageError(f"--report {arguments.report!r}: no file can have this name") from None
    if path.is_dir():
        return dated(path)
    if not path.parent.is_dir():
        raise UsageError(f"--report {arguments.report}: there is no folder {path.parent}")
    if path.exists() and not arguments.force:
        raise UsageError(f"--report {arguments.report}: it is there; --force replaces it")
    return path


def _command(question: Question, cell: str) -> str:
    """What to type for the same study, whatever it was typed as."""
    words = [f"--ranks {','.join(map(str, question.ranks))}"]
    words += [f"--{mode}" for mode in question.modes if len(question.modes) == 1]
    words.append(f"--rounds {question.rounds}")
    for name in ("steps", "watts"):
        if (value := getattr(question, name)) is not None:
            words.append(f"--{name} {value:g}")
    if (until := question.until) is not None:
        way = "max" if until.maximise else "min"
        words.append(f"--until {until.metric}={until.value:g}:{way}")
    words += typed_so(question.options)
    code = re.sub(r"\A\s*# %%tnt_\w+\n", "", cell).strip("\n")
    return f"%%tnt_bench training {' '.join(words)}\n{code}"
