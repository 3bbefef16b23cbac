"""How the fits of a cell are distributed: what ``%%tnt_fit`` and ``%%tnt_sweep`` both take."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook.choices import BATCH_NORM, EXCHANGES, split_exchange
from tnt_notebook.errors import MeshError, ScheduleError
from tnt_notebook.magics.mesh_options import given_layouts, mesh_arguments
from tnt_notebook.magics.pipeline import given_pipeline, pipeline_arguments
from tnt_notebook.plan.mesh import STAGE, Mesh
from tnt_notebook.plan.options import OPTIONS, mesh_of

Magic = Callable[..., Any]

_RESUME = {"auto": None, "yes": True, "no": False}
_EXCHANGE = (
    "what ranks do with their gradients (default: allreduce): one of the exchanges that "
    "%%%%tnt_fit? lists, as in late:warmup=100, or a variable on the ranks that holds one"
)


def distribution_arguments(magic: Magic) -> Magic:
    """Declares how a fit is distributed as arguments of a magic."""
    declared: list[Callable[[Magic], Magic]] = [
        argument("--bucket-mb", type=float, metavar="X",
                 help="MiB of gradients exchanged at a time"),
        argument("--exchange", metavar="NAME[:OPTION=VALUE,...]", help=_EXCHANGE),
        argument("--batch-norm", choices=BATCH_NORM,
                 help="samples for batch-norm statistics: those of the rank (default), or of the "
                 "whole batch"),
        pipeline_arguments(),
        mesh_arguments,
    ]  # fmt: skip
    for one in reversed(declared):
        magic = one(magic)
    return magic


def distribution_options(arguments: Namespace) -> dict[str, Any]:
    """What was typed of them, as :func:`tnt_notebook.engine.fit.run_fit_cell` takes it.

    Raises:
        UsageError: it cannot be.
    """
    options = {
        name: value
        for name in ("bucket_mb", "exchange", "batch_norm")
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.exchange is not None:
        check_exchange(arguments.exchange, arguments.bucket_mb)
    mesh, beside = _mesh(arguments)
    options |= beside
    if (pipeline := given_pipeline(arguments)) is not None:
        options["pipeline"] = pipeline
    if mesh is not None:
        options["mesh"] = str(mesh)
    return options


def typed_so(options: Mapping[str, Any]) -> list[str]:
    """What to type for such options."""
    words = [
        f"--{name.replace('_', '-')} {options[name]}"
        for name in ("bucket_mb", "exchange", "batch_norm", "mesh")
        if isinstance(options.get(name), (str, float))
    ]
    for layers, ways in options.get("layouts", {}).items():
        words.append(f"--layout {layers}:{','.join(f'{way}={axis}' for way, axis in ways.items())}")
    limit = {k: options[k] for k in ("memory_limit",) if k in options}
    for name, value in {**options.get("pipeline", {}), **limit}.items():
        flag = OPTIONS[name][0]
        said = ",".join(value) if isinstance(value, (list, tuple)) else value
        words.append(flag if value is True else f"{flag} {said}")
    return words


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


def fit_options(arguments: Namespace) -> dict[str, Any]:
    """What was typed of them, as :func:`distribution_options` gives it.

    Raises:
        UsageError: it cannot be.
    """
    options = distribution_options(arguments)
    if arguments.checkpoint is not None:
        options["checkpoint"] = {
            "folder": _folder(arguments.checkpoint),
            "every_s": arguments.every,
            "resume": _RESUME[arguments.resume or "auto"],
        }
    for name in ("every", "resume"):
        if arguments.checkpoint is None and getattr(arguments, name) is not None:
            raise UsageError(f"--{name}: only with --checkpoint, which says where")
    return options


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


def check_ranks(options: Mapping[str, Any], ranks: int) -> None:
    """Refuses stages and meshes that so many ranks do not fill."""
    try:
        mesh_of(options, ranks)
    except (MeshError, ScheduleError) as error:
        flag = "--pipeline" if options.get("mesh") is None else "--mesh"
        raise UsageError(f"{flag}: {error}") from None


def check_exchange(text: str, bucket_mb: float | None = None) -> None:
    """Refuses what ``--exchange`` cannot say."""
    name, said = split_exchange(text)
    if bucket_mb is not None:
        raise UsageError(f"--bucket-mb with --exchange: write --exchange {name}:bucket_mb=...")
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
