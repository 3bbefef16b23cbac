"""The traced functions of a stage: forward and backward of a micro-batch, each traced once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.pipeline.parts import parts_of
from tnt_notebook.parallel.pipeline.stage import StageModel

#: What the last stage does with the model's outputs: gives tensors that it adds up (training,
#: evaluation), or gives as they are (prediction).
Finish = Callable[[Any, list[tf.Tensor]], list[tf.Tensor]]


class StageFunctions:
    """The traced parts of a stage, and what their arguments and results are called.

    Args:
        labels: specs of what ``finish`` takes beside the model's outputs. The first is the number
            of samples that count, int64: with 0, the stage's state stays as it was.
        finish: see :data:`Finish`.
        kinds: of the parts: ``"FB"`` or ``"FIW"`` in training, else ``"F"``.
        state: variables that ``finish`` changes.

    Attributes:
        taken, given: names of values; ``d`` before them is their gradient's.
        labels: names of the labels.
        loss: name of the loss, if the stage adds to it.
        training: whether they are of a training step.
        results: names of what ``finish`` gives in prediction.
    """

    def __init__(
        self,
        model: StageModel,
        labels: Sequence[tf.TensorSpec],
        finish: Finish,
        kinds: str = "F",
        *,
        recompute: bool = False,
        training: bool = False,
        predicts: bool = False,
        state: Sequence[keras.Variable] = (),
    ) -> None:
        self.model = model
        self.number, self.training = model.number, training
        self.variables = model.trainable_variables()
        n = len(model.values)
        changing = [*model.state(), *state] if not predicts else []
        last: list[tf.Tensor] = []

        def forward(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            nonlocal last
            before = [tf.identity(v.value) for v in changing]
            values, losses = model.forward(tensors[:n], training)
            given = [values[v] for v in model.stage.gives]
            finished = finish(model.outputs(values), tensors[n:]) if model.is_last else []
            if predicts:
                last = finished
            else:
                losses += finished
                last = [tf.add_n(losses)] if losses else []
            for variable, value in zip(changing, before, strict=True):
                # A micro-batch without samples works on a borrowed one.
                variable.value.assign(tf.where(tensors[n] > 0, variable.value, value))
            return [*given, *last]

        self.parts = parts_of(
            forward,
            [*map(model.graph.spec, model.values), *labels],
            [v.value for v in self.variables],
            kinds,
            recompute,
            f"stage_{model.number}",
            differentiated=[i for i, v in enumerate(model.values) if v in model.trained],
        )
        self.taken = {value: f"x{i}" for i, value in enumerate(model.values)}
        self.given = {value: f"y{i}" for i, value in enumerate(model.stage.gives)}
        self.labels = [f"x{n + i}" for i in range(len(labels))]
        after = [f"y{len(self.given) + i}" for i in range(len(last))]
        self.loss = after[0] if after and not predicts else None
        self.results = after if predicts else []
