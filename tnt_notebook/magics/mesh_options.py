"""What is typed of a mesh, ``--mesh`` and ``--layout``, and what it says."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError

from tnt_notebook.errors import MeshError
from tnt_notebook.plan.hints import WAYS, parsed_hints
from tnt_notebook.plan.mesh import DATA, STAGE, Mesh
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.words import meant

#: Axes whose names mean something; any other name will do, as model.
AXES = ("data", "stage", "depth", "height", "width", "model")


#: Names that have so much in common with one of those are slips, and not names of one's own.
_A_SLIP = 0.8


def parsed_mesh(text: str) -> Mesh:
    """The mesh that ``--mesh`` names.

    Raises:
        MeshError: it is none.
        UsageError: an axis has nearly the name of one that means something else.
    """
    mesh = Mesh.parsed(text)
    for name in mesh.names:
        if name not in AXES and (near := meant(name, {axis: axis for axis in AXES}, _A_SLIP)):
            raise UsageError(f"--mesh {name}={mesh.along(name)}{near}")
    return mesh


def planned_mesh(text: str, asked: int | None, there: int, stages: int | None = None) -> Mesh:
    """The mesh to plan for: of the ranks that were asked for; else of those that there are, if they
    fill it; else of as many as it takes.

    Args:
        stages: of a pipeline, where the mesh has no axis for them.

    Raises:
        UsageError: it is none, or the ranks that were asked for do not fill it.
    """
    try:
        typed = parsed_mesh(text)
        added = stages if stages and STAGE not in typed.names else None
        size = typed.size * (added or 1)
        fills = there % size == 0 and DATA not in typed.names
        ranks = asked or (there if fills else size)
        return Pipeline(added).mesh_of(ranks, typed) if added else typed.of(ranks)
    except MeshError as error:
        raise UsageError(f"--mesh: {error}") from None


def given_layouts(arguments: Any) -> dict[str, dict[str, str]]:
    """What ``--layout`` says, as plain data.

    Raises:
        UsageError: it says nothing that can be meant, or there is no ``--mesh``.
    """
    texts = arguments.layouts or []
    if texts and arguments.mesh is None:
        raise UsageError("--layout: only with --mesh, which names the axes")
    try:
        return parsed_hints(texts)
    except MeshError as error:
        raise UsageError(f"--layout: {error}") from None


def candidates(option: str, typed: str, before: list[str]) -> list[str]:
    """What may be typed of such an option.

    Args:
        typed: of its value, so far.
        before: the words before it.
    """
    cut = 1 + max(typed.rfind(","), typed.rfind(":") if option == "--layout" else -1)
    begun, equals, _ = typed[cut:].partition("=")
    if option == "--mesh":
        named = {part.partition("=")[0] for part in typed[:cut].split(",")}
        return [] if equals else [f"{typed[:cut]}{one}=" for one in AXES if one not in named]
    if ":" not in typed:
        return []  # layers are known to the ranks alone
    if equals:
        axes = before[before.index("--mesh") + 1] if "--mesh" in before[:-1] else ""
        names = [part.partition("=")[0] for part in axes.split(",") if part]
        return [f"{typed[:cut]}{begun}={name}" for name in names if name != "data"]
    return [f"{typed[:cut]}{way}=" for way in WAYS]
