"""The train, test and predict steps of a model that is cut into stages.

    slice of this replica -> micro-batches -> schedule -> gradients of this rank's stages
        -> exchange with the ranks that have the same weights -> the user's own optimizer
        -> exchange of metric states, votes and fingerprints with all ranks

Each rank changes the weights of its own stages only; :meth:`.Weights.gather` makes the model whole
again on every rank.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tnt_notebook.comm import World, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.losses import loss_tracker
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.data import Replica, Sharded, Share, rows, samples_of, unpack, unzipped
from tnt_notebook.parallel.graph.emission import Here
from tnt_notebook.parallel.layer_graph.graph import standardized, wiring_of
from tnt_notebook.parallel.layer_graph.packing import packed
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.choose import chosen
from tnt_notebook.parallel.layers.layout_map import Wanted
from tnt_notebook.parallel.layers.measured import agreed_costs
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.pipeline.cut import agreed_begins, described
from tnt_notebook.parallel.pipeline.ending import All, MicroBatchHere, check_goes_back_after
from tnt_notebook.parallel.pipeline.endings import Endings, endings_of, joined
from tnt_notebook.parallel.pipeline.place import Place, Plan, Stages
from tnt_notebook.parallel.pipeline.positions import positions_of
from tnt_notebook.parallel.pipeline.predict import profile_of_rank
from tnt_notebook.parallel.pipeline.readers import ranks_without_data, share_of_pipeline
from tnt_notebook.parallel.pipeline.refusals import check_model
from tnt_notebook.parallel.pipeline.runtime import MicroBatch, PipelineStep
from tnt_notebook.parallel.pipeline.stage import Division, StageFunctions, stage_models
from tnt_notebook.parallel.step.combine import Change, combine_changes, known_rules
from tnt_notebook.parallel.step.interpose import gate
from tnt_notebook.parallel.step.logs import global_logs
from tnt_notebook.parallel.step.replicas import gather_rows
from tnt_notebook.parallel.step.step import Setting, Step
from tnt_notebook.parallel.step.weights import Weights
from tnt_notebook.plan.families import make
from tnt_notebook.plan.mesh import DATA, STAGE
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.partition import partition
from tnt_notebook.plan.profile import Profile, trained_so

_PHASES = ("train", "test", "predict")


class Made(NamedTuple):
    """A step that is made, with what ends it where the last stage is here."""

    step: PipelineStep
    endings: Endings | None
    labels: Sequence[Any]
    all_: All


class PipelineSteps:
    """The steps of one model. Made on all ranks at once. A rank that does not read is given
    anything in the place of batches.

    Attributes:
        weights: what this rank has of them.
        reads: whether this rank needs the batches.
        stages: what is seen of the cut.
    """

    late = None

    def __init__(
        self,
        setting: Setting,
        model: keras.Model,
        pipeline: Pipeline,
        ranks: MeshRanks,
        layouts: Wanted | None,
        batch_size: int,
    ) -> None:
        self._model, self._ranks = model, ranks
        self._graph = surveyed(model)
        replicas, position = ranks.mesh.along(DATA), ranks.place[STAGE]
        self._parts = pipeline.micro_batches * replicas
        check_model(model, self._graph, self._parts)
        schedule = make(
            pipeline.schedule, pipeline.stages, pipeline.micro_batches, pipeline.stages_per_rank
        )
        expected = pipeline.rows_of(batch_size, replicas)

        def profiled() -> Profile:
            profile, _ = profile_of_rank(model, self._graph, expected, ranks.mesh, layouts)
            return trained_so(profile, pipeline.micro_batches > 1, pipeline.recompute)

        begins = agreed_begins(setting.over, self._graph, pipeline, schedule, profiled)
        cut = partition(wiring_of(self._graph), begins)
        if 2 * len(cut.edges) * schedule.micro_batches > channels.EDGES.count:
            raise ModelError(
                f"{len(cut.edges)} values go from stage to stage in each of "
                f"{schedule.micro_batches} micro-batches: that is more than there are channels. "
                f"{channels.EDGES.remedy}"
            )
        self._plan = Plan(cut, schedule, pipeline.recompute)
        self.stages = Stages(
            ranks.mesh.lines([STAGE]), schedule, described(self._graph, pipeline, cut)
        )
        self._own = schedule.stages_of(position)
        self._place = Place(setting.over, ranks.mesh.line(setting.over.rank, [STAGE]), position)
        self._is_last = schedule.stages - 1 in self._own
        # The ranks that have the same stages, in all replicas.
        self._peers = ranks.group([DATA]) if replicas > 1 else None
        # Of ranks that divide the work of a stage, and have the same metrics, one speaks.
        self._counts = ranks.is_first_beside([DATA, STAGE])
        self._division: Division | None = None
        if ranks.mesh.is_divided:
            costs = agreed_costs(setting.over, model, self._graph, expected)
            program = chosen(self._graph, ranks.mesh, expected, costs, layouts)
            self._division = Division(program, ranks)
        self.reads = position not in ranks_without_data(self._plan)
        self._begin(setting)

    def compiled_again(self) -> PipelineSteps:
        """Those of the model with the loss, metrics and trainable weights that it has now.
        Collective."""
        check_model(self._model, self._graph, self._parts)
        self.weights.gather()
        anew = copy.copy(self)
        anew._begin(self.setting.anew())
        return anew

    def _begin(self, setting: Setting) -> None:
        self.setting = setting
        self._all_stages = stage_models(self._model, self._graph, self._plan.cut, self._division)
        self._functions: dict[Any, dict[int, StageFunctions]] = {}
        self._endings: dict[Any, Endings] = {}
        rank_of = self._plan.schedule.rank_of
        positions, stands_in = positions_of(self._model, self._all_stages, rank_of)
        self._stands_in_for = stands_in.get(self._place.rank, [])
        layouts = self._division.program.weights if self._division else {}
        self.weights = Weights(setting.exchange, self._model, self._ranks, layouts, positions)

    def as_needed(self, data: Sharded) -> Sharded:
        """Input, of which some ranks need nothing."""
        return data if self.reads else data.unread()

    def epoch_begins(self) -> None:
        """Replicas are the same after each step."""

    def settle(self) -> None:
        """They have nothing to combine."""

    # Steps --------------------------------------------------------------------------------

    def train_step(self, _: Callable[[Any], Any], batch: Any) -> dict[str, Any]:
        """Logs of a batch, after which the own stages have learnt from it."""
        model, over = self._model, self.setting.over
        data, share = self._with_share(batch)
        before = self._metrics_before()
        with ops.channels(channels.TRAINING):
            one = tf.constant(1.0)
            scale = tf.cast(model.optimizer.scale_loss(one) if model.optimizer else one, tf.float64)
            pipeline_step = self._step(data, share, "train", scale)
            gradients = pipeline_step.step.train()
            self._end(pipeline_step, share, "train")
            found = {id(v): tf.zeros_like(v.value) for v in self._stands_in_for} | gradients
            variables = [v for v in model.trainable_variables if id(v) in found]
            step = self.setting.step(model, share, self._ranks.group([DATA]), self.weights)
            step.alike |= pipeline_step.step.alike
            with gate(step):
                model.optimizer.apply([found[id(v)] for v in variables], variables)
            step.state.count()
            return self._logs(pipeline_step.step.loss, share, over, before)

    def test_step(self, _: Callable[[Any], Any], batch: Any) -> dict[str, Any]:
        """Logs of a batch."""
        data, share = self._with_share(batch)
        before = self._metrics_before()
        with ops.channels(channels.EVALUATION):
            pipeline_step = self._step(data, share, "test")
            pipeline_step.step.forward()
            self._end(pipeline_step, share, "test")
            return self._logs(pipeline_step.step.loss, share, self.setting.over, before)

    def predict_step(self, _: Callable[[Any], Any], batch: Any) -> Any:
        """The model's outputs for the global batch, on all ranks."""
        data, share = self._with_share(batch)
        over = self.setting.over
        with ops.channels(channels.PREDICTION):
            pipeline_step = self._step(data, share, "predict")
            pipeline_step.step.forward()
            self._end(pipeline_step, share, "predict")
            outputs: list[Any] = [None] * len(self._graph.outputs)
            if self._is_last and self._counts:
                outputs = joined(pipeline_step.step)
            numbers = {
                value: gather_rows(self._with_shape(value, output), over)
                for value, output in zip(self._graph.outputs, outputs, strict=True)
            }
            return keras.tree.map_structure(lambda n: numbers[n], self._graph.output_structure)

    def _with_shape(self, value: int, output: tf.Tensor | None) -> tf.Tensor:
        """An output of the model, on ranks that do not have it without rows. Collective."""
        shape = self._graph.shape(value, 0)
        if shape is None:
            row = tf.zeros([len(self._graph.shapes[value]) - 1], tf.int64)
            if output is not None:
                row = tf.shape(output, tf.int64)[1:]
            label = "allreduce of the shape of predictions"
            (row,) = ops.allreduce([row], reduction="max", label=label, over=self.setting.over)
            shape = tf.concat([[0], row], 0)
        return tf.zeros(shape, self._graph.specs[value].dtype) if output is None else output

    # Parts of a step ----------------------------------------------------------------------

    def _with_share(self, batch: Any) -> tuple[Any, Share]:
        if self.setting.over.size == 1:
            return batch, Share.of(samples_of(batch), Replica(0, 1), tf.constant(0, tf.int64))
        if not self.reads:
            # At the end of the data there is nothing to wait for.
            with tf.control_dependencies([batch]):
                return None, share_of_pipeline(self._plan, self._place)
        data, share = batch
        return unzipped(data), share_of_pipeline(self._plan, self._place, Share(*share))

    def _step(self, data: Any, share: Share, phase: str, scale: Any = 1.0) -> Made:
        inputs, y, sample_weight = {}, None, None
        if data is not None:
            x, y, sample_weight = unpack(data)
            inputs = standardized(self._graph, x)
        labels = [] if phase == "predict" else [y, sample_weight]
        labels = keras.tree.map_structure(_dense, labels)
        flat = [leaf for leaf in keras.tree.flatten(labels) if leaf is not None]
        count, replica = self._plan.schedule.micro_batches, self._ranks.place[DATA]
        specs = [tf.TensorSpec((), tf.int64)] * 3 + [tf.TensorSpec([None], tf.float64)]
        specs += [tf.TensorSpec((None, *t.shape[1:]), t.dtype) for t in flat]
        key = (phase, *((tuple(s.shape), s.dtype) for s in specs))
        if key not in self._functions:
            structure = keras.tree.map_structure(lambda leaf: leaf is not None, labels)
            # They are functions of their own, whatever is traced around them.
            with tf.init_scope():
                self._functions[key] = self._trace(key, specs, structure)
        for stage in self._functions[key].values():
            stage.state.begin()
        endings, known = self._endings.get(key), tf.zeros([0], tf.float64)
        here = Here.of(share.first, share.local, share.total)
        all_ = All(here, self._ranks.group([DATA]), self.setting.told)
        if endings is not None:
            endings.counted.begin(is_first=replica == 0)
            with ops.channels(self._channels("known", phase)):
                known = endings.known(labels, all_)
        micro_batches = []
        for k in range(count):
            begin, end = share.local * k // count, share.local * (k + 1) // count
            stop = tf.maximum(end, begin + 1)  # without samples it borrows one
            micro_batches.append(
                MicroBatch(
                    stop - begin,
                    {value: packed(rows(t, begin, stop)) for value, t in inputs.items()},
                    [
                        end - begin,
                        share.total,
                        share.first + begin,
                        known,
                        *(t[begin:stop] for t in flat),
                    ],
                    scale,
                )
            )

        def whole_loss(step: PipelineStep) -> tuple[tf.Tensor, list[list[tf.Tensor]]]:
            assert endings is not None
            with ops.channels(self._channels("loss", phase)):
                return endings.loss_of_all(step, labels, tf.convert_to_tensor(scale), all_)

        needs_all = endings is not None and endings.loss_is_of_all
        step = PipelineStep(
            self._plan, self._place, self._functions[key], micro_batches,
            whole_loss if needs_all else None,
        )  # fmt: skip
        return Made(step, endings, labels, all_)

    def _channels(self, what: str, phase: str) -> channels.Range:
        """Of what the replicas of a stage tell each other in a step."""
        kinds = ("known", "loss", "end", "state")
        number = kinds.index(what) * len(_PHASES) + _PHASES.index(phase)
        return channels.REPLICAS.part(number, len(kinds) * len(_PHASES))

    def _trace(
        self, key: tuple[Any, ...], specs: Sequence[tf.TensorSpec], structure: Any
    ) -> dict[int, StageFunctions]:
        phase: str = key[0]

        def finish(
            outputs: Any, labels: list[tf.Tensor]
        ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            if phase == "predict":
                return [], list(keras.tree.flatten(outputs))
            return self._finish(key, structure, outputs, labels)

        kinds = "F"
        if phase == "train":
            kinds = "FIW" if self._plan.schedule.splits_backward() else "FB"
        functions, count = {}, len(self._all_stages)
        for stage in (self._all_stages[number] for number in self._own):
            # Ranks of other stages do not count the channels of its conversions.
            number = _PHASES.index(phase) * count + stage.number
            with (
                ops.channels(channels.CONVERSIONS.part(number, len(_PHASES) * count)),
                self.weights.blocks.regularized_as_a_whole(),
            ):
                functions[stage.number] = StageFunctions(
                    stage,
                    specs if stage.is_last else specs[:3],
                    finish,
                    kinds,
                    recompute=self._plan.recompute,
                    training=phase == "train",
                    predicts=phase == "predict",
                    number_of_parts=self._parts,
                    replica=self._ranks.place[DATA],
                )
        return functions

    def _end(self, made: Made, share: Share, phase: str) -> None:
        """Gives metrics and what layers change themselves the values that one process would
        have."""
        step, endings = made.step, made.endings
        if endings is not None:
            with ops.channels(self._channels("end", phase)):
                endings.finish(step, made.labels, made.all_, phase == "train")
            endings.counted.end(is_first=self._ranks.place[DATA] == 0)
        peers: Any = self._peers or self.setting.over
        here = Step(peers, self.setting.exchange, self._model, share)
        changes = [c for stage in step.stages.values() for c in stage.state.finish(here)]
        if self._peers is not None:
            with ops.channels(self._channels("state", phase)):
                combine_changes(here.part, changes)

    def _finish(
        self, key: tuple[Any, ...], structure: Any, outputs: Any, given: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """What the last stage makes of the outputs of a micro-batch."""
        rows, total, first, known, *flat = given
        leaves, schedule = iter(flat), self._plan.schedule
        labels = keras.tree.map_structure(lambda there: next(leaves) if there else None, structure)
        values = keras.tree.flatten(self._graph.output_structure)
        shapes = [self._graph.spec(value).shape for value in values]
        endings = endings_of(self._model, outputs, shapes, labels, self._parts)
        if endings.loss is not None and endings.loss_is_of_all and key[0] == "train":
            own = schedule.actions[self._place.rank]
            check_goes_back_after(endings.loss, own, schedule.stages - 1, schedule.name)
        self._endings[key] = endings
        micro = MicroBatchHere(Here.of(first, rows, total), self._parts)
        return endings.of_part(outputs, labels, micro, known)

    def _metrics_before(self) -> list[Change]:
        """The states of metrics, which stages are about to change."""
        rules = known_rules(self._model)
        return [
            # Every stage adds its losses to that of the batch, not those with samples alone.
            Change(v, tf.identity(tensor_of(v)), rules.get(id(v), "sum"), self._counts)
            for v in self._model.metrics_variables
        ]

    def _logs(
        self, loss: Any, share: Share, over: World, metrics: Sequence[Change]
    ) -> dict[str, Any]:
        model = self._model
        speaks = self._is_last and self._counts
        counts = share.local if speaks else tf.constant(0, tf.int64)
        tracker = loss_tracker(model)
        total = tf.cast(share.total, loss.dtype)
        tracker.total.assign_add(tf.cast(loss * total, tracker.total.dtype))
        tracker.count.assign_add(tf.cast(counts, tracker.count.dtype))
        step = Step(over, self.setting.exchange, model, share._replace(local=counts))
        return global_logs(step, model.get_metrics_result(), metrics, self.setting.votes)


def _dense(labels: Any) -> Any:
    return tf.sparse.to_dense(labels) if isinstance(labels, tf.SparseTensor) else labels
