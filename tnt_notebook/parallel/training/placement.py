"""Where a model is, and how its steps run there: ranks as a mesh with named axes.

::

    data              replicas of the model, each with its part of a batch
    stage             a replica is cut into stages
    any other axis    the layers of a replica are divided

Ranks that have whole copies are the mesh that has only ``data``.
"""

from __future__ import annotations

import math

import keras

from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.consistency.model_state import optimizers_of
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.layers.divided import DividedLayers
from tnt_notebook.parallel.layers.layout_map import Wanted
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.pipeline.steps import PipelineSteps
from tnt_notebook.parallel.step.replicas import Replicas
from tnt_notebook.parallel.step.step import Setting
from tnt_notebook.plan.mesh import DATA
from tnt_notebook.plan.options import Pipeline

#: Which ranks have what of a model, and the steps that they run. Thrown away when the model is
#: compiled again.
Placement = Replicas | PipelineSteps

#: The batch size for which a model is cut and divided where it is not known.
_USUAL_BATCH_SIZE = 32


def placed(
    setting: Setting,
    model: keras.Model,
    ranks: MeshRanks,
    pipeline: Pipeline | None = None,
    layouts: Wanted | None = None,
    batch_size: int | None = None,
    memory: float = math.inf,
) -> Placement:
    """Places a model on the ranks. Collective.

    Args:
        ranks: the mesh; with an axis ``stage`` where there is a pipeline.
        pipeline: how the model is cut into stages.
        layouts: of layers, as far as they are asked for.
        batch_size: of the global batch.
        memory: bytes that a rank of a mesh without stages may need.

    Raises:
        ModelError: the exchange, an optimizer, or what is asked of batch norm does not go with it.
    """
    check(setting.exchange, model, setting.batch_norm, setting.over.size, pipeline is not None)
    batch_size = batch_size or _USUAL_BATCH_SIZE
    if pipeline is not None:
        return PipelineSteps(setting, model, pipeline, ranks, layouts, batch_size)
    layers = None
    if ranks.mesh.is_divided:
        samples = -(-batch_size // ranks.mesh.along(DATA))
        layers = DividedLayers(model, ranks, layouts, samples, memory)
    return Replicas(setting, model, ranks, layers)


def check(
    exchange: Exchange, model: keras.Model, batch_norm: str, ranks: int, in_stages: bool
) -> None:
    """Raises ModelError as :func:`placed`."""
    for optimizer in optimizers_of(model):
        if why := exchange.refuses(optimizer):
            raise ModelError(f"The exchange {name_of(exchange)} cannot be used here: {why}.")
    if exchange.has_owners and not exchange.keeps_ranks_equal:
        raise ModelError(
            f"The exchange {name_of(exchange)} has one rank train a variable for all, and lets "
            "replicas train weights of their own: it can do one of these."
        )
    if in_stages and not exchange.keeps_ranks_equal:
        raise ModelError(
            f"The exchange {name_of(exchange)} lets replicas train weights of their own, so it "
            "needs ranks that have all layers: use it without a pipeline."
        )
    is_apart = ranks > 1 and not exchange.keeps_ranks_equal
    if batch_norm == "whole" and (in_stages or is_apart):
        where = "a pipeline" if in_stages else f"the exchange {name_of(exchange)}"
        raise ModelError(
            f"batch_norm='whole' is not possible with {where}: its ranks do not run a step "
            "together. Leave it out, or make layers with synchronized=True where that is known."
        )
