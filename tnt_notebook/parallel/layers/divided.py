"""A model whose layers are divided over a mesh, in the model's own step.

    the model's own step, with its call on blocks -> outputs, whole or in blocks
        -> gradients, added up within the replica -> the user's own optimizer on blocks

All ranks of a replica compute the same loss of the same outputs. So a step is the model's own, and
replicas run it as ranks do that have the whole model.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import keras

from tnt_notebook.keras.graph import functional_of, takes_any_shape
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.parallel.data import InBlocks, Sharded
from tnt_notebook.parallel.layer_graph.graph import Graph, standardized
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.choose import chosen
from tnt_notebook.parallel.layers.inputs import input_blocks, layouts_within
from tnt_notebook.parallel.layers.layout_map import Wanted
from tnt_notebook.parallel.layers.measured import agreed_costs
from tnt_notebook.parallel.layers.outputs import Outputs
from tnt_notebook.parallel.layers.program import Program
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.weight_blocks import WeightBlocks
from tnt_notebook.plan.mesh import DATA


class DividedLayers:
    """How the layers of a model are divided. Made on all ranks at once.

    Args:
        samples: of a replica, for which layouts are chosen.
        memory: bytes that a rank may need.

    Attributes:
        program: what each call does.
    """

    def __init__(
        self,
        model: keras.Model,
        ranks: MeshRanks,
        layouts: Wanted | None = None,
        samples: int = 1,
        memory: float = math.inf,
    ) -> None:
        self._model, self._ranks = model, ranks
        # A model whose call is Python code has no layers that could be divided, and is whole.
        if functional_of(model) is None and not layouts:
            self._graph = Graph()
            self.program = Program(self._graph, [])
        else:
            self._graph = surveyed(model)
            costs = agreed_costs(ranks.over, model, self._graph, samples)
            self.program = chosen(self._graph, ranks.mesh, samples, costs, layouts, memory)

    def in_blocks(self, data: Sharded) -> Sharded:
        """Input of which this rank gets no more than it needs of each sample."""
        blocks = input_blocks(self._model, self.program, self._ranks, data.element)
        return data.in_blocks(blocks) if blocks else data

    @contextlib.contextmanager
    def at_work(
        self, blocks: WeightBlocks, data: Any, outputs: Outputs | None = None, by_rank: bool = False
    ) -> Iterator[None]:
        """Inside, a call of the model computes on blocks, and a step's own code sees whole weights.

        Args:
            data: of a batch.
            outputs: gets outputs that are in blocks; default: they are gathered.
            by_rank: whether statistics of batch norm are of the samples of a replica.
        """
        model, program, in_blocks = self._model, self.program, isinstance(data, InBlocks)
        by_rank = by_rank and self._ranks.mesh.along(DATA) > 1

        def call(own: Any, called: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            if called is not model:
                return own(called, inputs, training=training, mask=mask)
            values = standardized(self._graph, inputs)
            layouts = layouts_within(program, self._ranks, values) if in_blocks else {}
            with blocks.at_work():
                return program.run(values, self._ranks, bool(training), by_rank, outputs, layouts)

        with contextlib.ExitStack() as stack:
            if program.ways:
                stack.enter_context(replaced(type(model), "call", call))
            if in_blocks:
                stack.enter_context(takes_any_shape(model))
            stack.enter_context(blocks.regularized_as_a_whole())
            stack.enter_context(blocks.seen_whole())
            yield
