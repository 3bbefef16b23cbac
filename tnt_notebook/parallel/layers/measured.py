"""Costs as they were measured on this cluster, as far as they were; else the usual ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import keras

from tnt_notebook.comm import World
from tnt_notebook.parallel.consistency.agreement import from_rank_0
from tnt_notebook.parallel.layer_graph.graph import Graph, trained_values
from tnt_notebook.parallel.layer_graph.profile import kept_by, known_of, slots_of
from tnt_notebook.parallel.layers.costs import Costs
from tnt_notebook.parallel.layers.link import known_link
from tnt_notebook.plan.measurements import Measured
from tnt_notebook.plan.network import ASSUMED, Link


def costs_of(
    model: keras.Model, graph: Graph, of_calls: Sequence[Measured | None], link: Link | None
) -> Costs:
    """Costs of a model.

    Args:
        of_calls: what is known of each call of its graph.
        link: what is known of what ranks exchange with.
    """
    learning = trained_values(graph)
    calls: dict[int, float] = {}
    inner: dict[int, int] = {}
    held = {*graph.outputs}  # for the loss
    for number, (call, measured) in enumerate(zip(graph.calls, of_calls, strict=True)):
        if measured is None:
            held |= {*call.takes, *call.gives}
        else:
            calls[number] = measured.forward + measured.inputs + measured.weights
            inner[number] = round(measured.inner_bytes)
            held.update(kept_by(call, measured, learning))
    return Costs(
        calls=calls, inner=inner, held=frozenset(held), link=link or ASSUMED,
        slots=slots_of(getattr(model, "optimizer", None)),
    )  # fmt: skip


def agreed_costs(over: World, model: keras.Model, graph: Graph, samples: int) -> Costs:
    """What rank 0 knows from earlier, on all ranks, so that they choose the same. Collective."""
    told: dict[str, Any] = {}
    if over.rank == 0:
        costs = costs_of(model, graph, known_of(model, graph, samples), known_link(over))
        told = {**asdict(costs), "held": sorted(costs.held or ())}
    told = from_rank_0(over, told)
    by_number = {name: {int(n): x for n, x in told[name].items()} for name in ("calls", "inner")}
    parsed = {"held": frozenset(told["held"]), "link": Link(*told["link"])}
    return Costs(**{**told, **by_number, **parsed})
