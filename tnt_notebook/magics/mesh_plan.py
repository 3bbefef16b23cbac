"""``%tnt_plan --mesh``: has rank 0 measure a model, and shows how a mesh would divide it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnt_notebook.dashboard.reports.layouts import (
    HEAD,
    figure_bundle,
    headline,
    limit,
    link,
    memory,
    rows,
    whole,
)
from tnt_notebook.magics.planning import asked, measured_link
from tnt_notebook.magics.progress import StatusLine, show
from tnt_notebook.magics.table import Bold, Table, bundle
from tnt_notebook.plan.layouts import MeshPlan, from_json
from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.protocol import Call

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster

#: A table of more layers is folded in a browser.
_FOLDED = 40


def run(
    cluster: Cluster,
    name: str,
    mesh: Mesh,
    hints: dict[str, dict[str, str]],
    batch_size: int,
    memory_limit: int | None,
) -> MeshPlan:
    """Plans and shows.

    Args:
        name: of the model on the ranks.
        mesh: of any number of ranks.
        hints: as :func:`tnt_notebook.plan.hints.parsed_hints` gives them.
        memory_limit: bytes that a rank may need.

    Raises:
        ModelError, MeshError: there is no plan; the message says why.
        RankError: it failed on a rank.
    """
    status = StatusLine()
    known = measured_link(cluster, status)
    answer = asked(
        cluster, status, Call.PLAN_MESH, name, str(mesh), hints, batch_size, known, memory_limit
    )
    plan = from_json(answer["plan"])
    show(plan_bundle(plan), figure_bundle(plan))
    return plan


def plan_bundle(plan: MeshPlan) -> dict[str, str]:
    """What to expect, the table of layers, and what runs whole."""
    count = len(plan.layers)
    folded = f"layer by layer ({count})" if count > _FOLDED else ""
    *layers, exchanged = layers_of(plan, folded)
    return bundle(Bold(f"{headline(plan)}\n{limit(plan)}"), *layers, memory(plan), exchanged)


def layers_of(plan: MeshPlan, folded: str) -> list[Table | str]:
    """The table of layers, what runs whole, and what ranks exchange with.

    Args:
        folded: the title of a table that opens in a browser; empty: it is open.
    """
    left = {"layer", "divided by", "gives", "conversion before it"}
    table = Table(HEAD, rows(plan), left=left, folded=folded)
    return [table, *filter(None, [whole(plan)]), link(plan)]
