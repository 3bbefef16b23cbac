"""How the fits of a cell are distributed: what ``%%tnt_fit`` and ``%%tnt_sweep`` both take."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook.choices import EXCHANGES, split_exchange
from tnt_notebook.errors import MeshError, ScheduleError
from tnt_notebook.magics.mesh_options import given_layouts, parsed_mesh
from tnt_notebook.magics.option_tables import arguments_of, given
from tnt_notebook.magics.plan_option import planned
from tnt_notebook.plan.fit_options import TYPED, FitOptions
from tnt_notebook.plan.mesh import STAGE
from tnt_notebook.plan.options import OPTIONS

Magic = Callable[..., Any]

_RESUME = {"auto": None, "yes": True, "no": False}


def distribution_arguments(magic: Magic) -> Magic:
    """Declares how a fit is distributed as arguments of a magic."""
    return arguments_of({**TYPED, **OPTIONS})(magic)


def distribution_options(arguments: Namespace, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed of them, as :meth:`tnt_notebook.plan.fit_options.FitOptions.of` takes it.

    Args:
        variables: of the notebook, one of which may hold a plan.

    Raises:
        UsageError: it cannot be.
    """
    options, pipeline = given(TYPED, arguments), given(OPTIONS, arguments)
    if arguments.plan is not None:
        options["plan"] = planned(arguments, variables)
        if (limit := pipeline.pop("memory_limit", None)) is not None:
            options["memory_limit"] = limit
    if arguments.exchange is not None:
        check_exchange(arguments.exchange)
    if layouts := given_layouts(arguments):
        options["layouts"] = layouts
    try:
        if arguments.mesh is not None:
            mesh = parsed_mesh(arguments.mesh)
            options["mesh"] = str(mesh)
            if STAGE in mesh.names:  # it is that of a pipeline, also without --pipeline
                pipeline.setdefault("stages", mesh.along(STAGE))
            elif "stages" not in pipeline and "memory_limit" in pipeline:
                options["memory_limit"] = pipeline.pop("memory_limit")
    except MeshError as error:
        raise UsageError(f"--mesh: {error}") from None
    if pipeline and "stages" not in pipeline:
        flags = ", ".join(OPTIONS[name][0] for name in pipeline)
        raise UsageError(f"{flags}: only with --pipeline, which sets the number of ranks")
    if pipeline:
        options["pipeline"] = pipeline
    try:
        FitOptions.of(options)
    except (MeshError, ScheduleError, ValueError) as error:
        raise UsageError(str(error)) from None
    return options


def fit_arguments(checkpoint: str) -> Callable[[Magic], Magic]:
    """Declares those of a fit as arguments of a magic.

    Args:
        checkpoint: what ``--checkpoint`` does.
    """
    declared: list[Callable[[Magic], Magic]] = [
        distribution_arguments,
        argument("--checkpoint", metavar="DIR", help=checkpoint),
        argument("--every", type=float, metavar="S",
                 help="seconds between checkpoints (default: 600)"),
        argument("--resume", choices=[*_RESUME],
                 help="what to do with a run in DIR: resume it if it is an unfinished run of this "
                 "cell (auto, default), resume it in any case, or start over"),
    ]  # fmt: skip

    def on(magic: Magic) -> Magic:
        for one in reversed(declared):
            magic = one(magic)
        return magic

    return on


def fit_options(arguments: Namespace, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed of them, as :func:`distribution_options` gives it.

    Args:
        variables: of the notebook.

    Raises:
        UsageError: it cannot be.
    """
    options = distribution_options(arguments, variables)
    if arguments.checkpoint is not None:
        options["checkpoint"] = {
            "folder": _folder(arguments.checkpoint),
            "every_s": arguments.every,
            "resume": _RESUME[arguments.resume or "auto"],
        }
    for name in ("every", "resume"):
        if arguments.checkpoint is None and getattr(arguments, name) is not None:
            raise UsageError(f"--{name}: only with --checkpoint, which names the folder")
    return options


def check_ranks(options: Mapping[str, Any], ranks: int) -> None:
    """Refuses stages and meshes that so many ranks do not fill."""
    try:
        FitOptions.of(options).mesh_of(ranks)
    except (MeshError, ScheduleError) as error:
        flag = "--pipeline" if options.get("mesh") is None else "--mesh"
        flag = flag if options.get("plan") is None else "--plan"
        raise UsageError(f"{flag}: {error}") from None


def check_exchange(text: str) -> None:
    """Refuses what ``--exchange`` cannot say."""
    name, said = split_exchange(text)
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


def _folder(named: str) -> str:
    try:
        if named.strip():
            return str(Path(named).expanduser().absolute())
    except RuntimeError:  # ~somebody who is not there
        pass
    raise UsageError(f"--checkpoint {named!r}: no folder can have this name")
