"""The train, test and predict steps of a model whose layers are divided over a mesh.

    slice of this replica -> the model's own step, with its call on blocks -> outputs, whole
        -> gradients, added up by groups -> the user's own optimizer on blocks
        -> exchange of metric states, votes and fingerprints with all ranks

All ranks of a replica compute the same loss of the same outputs. So a step is the model's own, as
in :mod:`tnt_notebook.parallel.data_parallel`, and replicas are what ranks are there.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.keras.compiled import outputs_go_to_compiled
from tnt_notebook.keras.graph import functional_of, takes_any_shape
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.parallel.changes import changes_of
from tnt_notebook.parallel.combine import combine_changes
from tnt_notebook.parallel.data import Block, InBlocks, Sharded, Share
from tnt_notebook.parallel.data_parallel import check_exchanged, checked_logs, rows_of_all
from tnt_notebook.parallel.interpose import drawn_apart, interposed, recorded_assignments
from tnt_notebook.parallel.layers.by_variable import Wanted
from tnt_notebook.parallel.layers.choose import chosen
from tnt_notebook.parallel.layers.inputs import input_blocks, layouts_within
from tnt_notebook.parallel.layers.measured import agreed_costs
from tnt_notebook.parallel.layers.outputs import Outputs, taken_in_blocks
from tnt_notebook.parallel.layers.program import Program
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.weights import MeshWeights
from tnt_notebook.parallel.logs import global_logs
from tnt_notebook.parallel.norm import sum_over_ranks
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
        self._tried: set[int] = set()
        self._blocks: dict[int, Block] = {}
        self.weights = MeshWeights(model, self._program, ranks, setting.exchange)

    def in_blocks(self, data: Sharded) -> Sharded:
        """Input of which this rank gets no more than it needs of each sample."""
        blocks = input_blocks(self._model, self._program, self._ranks, data.element)
        self._blocks |= {block.leaf: block for block in blocks}
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
        with ops.channels(channels.TRAINING):
            with self._model_on_blocks(step, own_step, batch, training=True):
                logs = checked_logs(own_step(data))
            check_exchanged(step)
            step.kept.count()
            return self._logs(step, own_step, self._whole(batch), logs)

    def test_step(self, own_step: Callable[[Any], Any], batch: Any) -> dict[str, Any]:
        """Logs of a batch."""
        data, step = self._begin(batch)
        with ops.channels(channels.EVALUATION):
            with self._model_on_blocks(step, own_step, batch, training=False):
                logs = checked_logs(own_step(data))
            return self._logs(step, own_step, self._whole(batch), logs)

    def predict_step(self, own_step: Callable[[Any], Any], batch: Any) -> Any:
        """The model's outputs for the global batch, on all ranks."""
        data, step = self._begin(batch)
        with ops.channels(channels.PREDICTION):
            with (
                self._on_blocks(step, batch, training=False),
                recorded_assignments(step.record),
                drawn_apart(0, step.drawn),
            ):
                outputs = own_step(data)
            return keras.tree.map_structure(
                lambda output: rows_of_all(output, step.share, self._data), outputs
            )

    def _begin(self, batch: Any) -> tuple[Any, Step]:
        data, share = batch
        if isinstance(data, InBlocks):
            data = data.batch
        setting = self._setting
        step = Step(
            self._data, self.weights.exchange, self._model, Share(*share), kept=setting.kept,
            applied=setting.applied, owners=setting.owners,
        )  # fmt: skip
        return data, step

    def _whole(self, batch: Any) -> Any:
        """What a step is given of a batch; in the place of blocks, what whole samples are like."""
        data, _ = batch
        if not isinstance(data, InBlocks):
            return data
        leaves = keras.tree.flatten(data.batch)
        for number, block in self._blocks.items():
            if leaves[number].shape[1:] == block.size:
                leaves[number] = tf.TensorSpec([None, *block.shape], leaves[number].dtype)
        return keras.tree.pack_sequence_as(data.batch, leaves)

    @contextlib.contextmanager
    def _model_on_blocks(
        self, step: Step, own_step: Callable[[Any], Any], batch: Any, training: bool
    ) -> Iterator[None]:
        """Around a step of the model: its layers compute on blocks, and so do losses and metrics
        where nothing else sees what it returns."""
        with contextlib.ExitStack() as stack:
            outputs = None
            if outputs_go_to_compiled(self._model, own_step):
                outputs = Outputs(self._ranks)
            stack.enter_context(self._on_blocks(step, batch, training, outputs))
            stack.enter_context(interposed(step))
            if outputs is not None:
                stack.enter_context(taken_in_blocks(step, outputs))
            yield

    @contextlib.contextmanager
    def _on_blocks(
        self, step: Step, batch: Any, training: bool, outputs: Outputs | None = None
    ) -> Iterator[None]:
        """Inside, a call of the model computes on blocks, and its optimizer sees whole weights."""
        model, graph, program = self._model, self._graph, self._program
        in_blocks = isinstance(batch[0], InBlocks)
        over_data = functools.partial(sum_over_ranks, step)

        def call(own: Any, called: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            if called is not model:
                return own(called, inputs, training=training, mask=mask)
            values = standardized(graph, inputs)
            layouts = layouts_within(program, self._ranks, values) if in_blocks else {}
            return program.run(values, self._ranks, bool(training), over_data, outputs, layouts)

        with contextlib.ExitStack() as stack:
            if program.ways:
                stack.enter_context(replaced(type(model), "call", call))
            if in_blocks:
                stack.enter_context(takes_any_shape(model))
            stack.enter_context(self.weights.blocks.regularized_as_a_whole())
            if training:
                trained = model.trainable_variables
                stack.enter_context(self.weights.seen_as_a_whole(trained))
            yield

    def _logs(
        self, step: Step, own_step: Callable[[Any], Any], data: Any, logs: dict[str, Any]
    ) -> dict[str, Any]:
        of_metrics, others = changes_of(step, own_step, data, self._tried)
        combine_changes(step.part, others)
        # Of the ranks of a replica, which have the same, one counts.
        local = step.share.local
        if not self._ranks.is_first_beside([DATA]):
            local = tf.zeros_like(local)
        setting = self._setting
        of_all = Step(
            setting.over, setting.exchange, self._model, step.share._replace(local=local),
            assigned=step.assigned,
        )  # fmt: skip
        return global_logs(of_all, logs, of_metrics, setting.votes)
