"""The train, test and predict steps of a model whose layers are divided over a mesh.

    slice of this replica -> the model's own step, with its call on blocks -> outputs, whole
        -> gradients, added up within the replica, exchanged between replicas
        -> the user's own optimizer on blocks

All ranks of a replica compute the same loss of the same outputs. So a step is the model's own, as
in :mod:`tnt_notebook.parallel.data_parallel`, and replicas run it together as ranks do there.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import keras

from tnt_notebook.comm import channels, ops
from tnt_notebook.keras.graph import functional_of, takes_any_shape
from tnt_notebook.keras.losses import outputs_go_to_compiled
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.parallel.data import InBlocks, Sharded, Share
from tnt_notebook.parallel.data_parallel import by_all, predicted_by_all, trained_by_all
from tnt_notebook.parallel.layers.by_variable import Wanted
from tnt_notebook.parallel.layers.choose import chosen
from tnt_notebook.parallel.layers.inputs import input_blocks, layouts_within
from tnt_notebook.parallel.layers.measured import agreed_costs
from tnt_notebook.parallel.layers.outputs import Outputs, taken_in_blocks
from tnt_notebook.parallel.layers.program import Program
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.weights import MeshWeights
from tnt_notebook.parallel.pipeline.graph import Graph, standardized
from tnt_notebook.parallel.pipeline.survey import surveyed
from tnt_notebook.parallel.step import Setting, Step
from tnt_notebook.plan.mesh import DATA

#: The batch size for which layouts are chosen where it is not known.
_USUAL_BATCH_SIZE = 32


class MeshSteps:
    """The steps of one model. Made on all ranks at once.

    Attributes:
        weights: in blocks while it trains.
    """

    def __init__(
        self,
        setting: Setting,
        model: keras.Model,
        ranks: MeshRanks,
        layouts: Wanted | None = None,
        batch_size: int | None = None,
        memory: float = math.inf,
    ) -> None:
        self._setting, self._model = setting, model
        self._ranks, mesh = ranks, ranks.mesh
        self._data = ranks.group([DATA])
        # A model whose call is Python code has no layers that could be divided, and is whole.
        is_whole = functional_of(model) is None and not layouts
        self._graph = Graph() if is_whole else surveyed(model)
        samples = -(-(batch_size or _USUAL_BATCH_SIZE) // mesh.along(DATA))
        if is_whole:
            self._program = Program(self._graph, [])
        else:
            costs = agreed_costs(setting.over, model, self._graph, samples)
            self._program = chosen(self._graph, mesh, samples, costs, layouts, memory)
        self.weights = MeshWeights(model, self._program, ranks, setting.exchange)

    def in_blocks(self, data: Sharded) -> Sharded:
        """Input of which this rank gets no more than it needs of each sample."""
        blocks = input_blocks(self._model, self._program, self._ranks, data.element)
        return data.in_blocks(blocks) if blocks else data

    def compiled_again(self) -> None:
        """Goes by the model's optimizer and trainable weights as they are now. Collective."""
        self.weights.gather()
        self.weights = MeshWeights(
            self._model, self._program, self._ranks, self._setting.exchange, self.weights
        )

    def train_step(self, own_step: Callable[[Any], Any], batch: Any) -> dict[str, Any]:
        """Logs of a batch, after which the model has learnt from it."""
        data, step = self._begin(batch)
        own_step = self._on_blocks(own_step, batch, step, training=True)
        with ops.channels(channels.TRAINING):
            return trained_by_all(self._setting, step, own_step, data)

    def test_step(self, own_step: Callable[[Any], Any], batch: Any) -> dict[str, Any]:
        """Logs of a batch."""
        data, step = self._begin(batch)
        own_step = self._on_blocks(own_step, batch, step, training=False)
        with ops.channels(channels.EVALUATION):
            return by_all(self._setting, step, own_step, data)

    def predict_step(self, own_step: Callable[[Any], Any], batch: Any) -> Any:
        """The model's outputs for the global batch, on all ranks."""
        data, step = self._begin(batch)

        def predicted(batch: Any) -> Any:
            with self._model_on_blocks(in_blocks, training=False, outputs=None):
                return own_step(batch)

        in_blocks = isinstance(batch[0], InBlocks)
        with ops.channels(channels.PREDICTION):
            return predicted_by_all(step, predicted, data)

    def _begin(self, batch: Any) -> tuple[Any, Step]:
        data, share = batch
        if isinstance(data, InBlocks):
            data = data.batch
        step = self._setting.step(self._model, Share(*share))
        return data, replace(
            step, over=self._data, exchange=self.weights.exchange, within=self.weights
        )

    def _on_blocks(
        self, own_step: Callable[[Any], Any], batch: Any, step: Step, training: bool
    ) -> Callable[[Any], Any]:
        """A step of the model whose layers compute on blocks, and so do losses and metrics where
        nothing else sees what it returns."""
        in_blocks = isinstance(batch[0], InBlocks)

        def run(batch: Any) -> Any:
            with contextlib.ExitStack() as stack:
                outputs = None
                if outputs_go_to_compiled(self._model, own_step):
                    outputs = Outputs(self._ranks, step.told)
                    stack.enter_context(taken_in_blocks(outputs))
                stack.enter_context(self._model_on_blocks(in_blocks, training, outputs))
                return own_step(batch)

        return run

    @contextlib.contextmanager
    def _model_on_blocks(
        self, in_blocks: bool, training: bool, outputs: Outputs | None
    ) -> Iterator[None]:
        """Inside, a call of the model computes on blocks, and its optimizer sees whole weights."""
        model, graph, program = self._model, self._graph, self._program
        by_rank = self._setting.batch_norm == "rank" and self._data.size > 1

        def call(own: Any, called: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            if called is not model:
                return own(called, inputs, training=training, mask=mask)
            values = standardized(graph, inputs)
            layouts = layouts_within(program, self._ranks, values) if in_blocks else {}
            with self.weights.at_work():
                return program.run(values, self._ranks, bool(training), by_rank, outputs, layouts)

        with contextlib.ExitStack() as stack:
            if program.ways:
                stack.enter_context(replaced(type(model), "call", call))
            if in_blocks:
                stack.enter_context(takes_any_shape(model))
            stack.enter_context(self.weights.blocks.regularized_as_a_whole())
            if training:
                trained = model.trainable_variables
                stack.enter_context(self.weights.seen_as_a_whole(trained))
            stack.enter_context(self.weights.blocks.seen_whole())
            yield
