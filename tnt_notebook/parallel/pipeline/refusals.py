"""What a pipeline cannot do, said before training."""

from __future__ import annotations

import keras

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import layers_within
from tnt_notebook.keras.state import is_of_keras
from tnt_notebook.parallel.layer_graph.graph import Graph, layers_of


def check_model(model: keras.Model, graph: Graph, parts: int) -> None:
    """Raises ModelError for what a pipeline that sees a batch in so many parts cannot do."""
    for name in ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics"):
        # The steps' own replacement hangs on the instance, not on the class.
        if not is_of_keras(getattr(type(model), name)):
            raise ModelError(
                f"{type(model).__name__} has a {name} of its own, and a pipeline runs Keras's: "
                "train it without a pipeline, or let a loss or metric do what it does."
            )
    whole = [
        layer.name
        for outer in layers_of(graph.calls)
        for layer in layers_within(outer)
        if getattr(layer, "synchronized", False) and layer.trainable
    ]
    if whole and parts > 1:
        raise ModelError(
            f"BatchNormalization {whole[0]!r} is synchronized: it needs all of a batch, and in a "
            "pipeline a batch comes to it in parts, one after the other. Make it without "
            "synchronized=True, to normalise micro-batches, or use layer or group normalization."
        )
