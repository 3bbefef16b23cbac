"""Layers that say something about how a model is to be distributed."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable("tnt_notebook")
class SplitLayer(keras.layers.Identity):
    """Marks where a pipeline cuts the model: a new stage begins with it.

    Gives its inputs (a tensor, or a structure of tensors) as they are, with their masks. A model
    that has such layers is cut at each of them, unless ``tnt.Pipeline(cut_at=[...])`` names others;
    where several stand side by side, on branches of the graph, they are one cut. Without a pipeline
    it does nothing. To load a saved model that has one, ``import tnt_notebook.keras`` first.

    Args:
        kwargs: of ``keras.layers.Layer``: ``name``.

    Example::

        x = keras.layers.Conv2D(64, 3)(x)
        x = tnt.keras.layers.SplitLayer()(x)    # the second stage begins here
        x = keras.layers.Conv2D(128, 3)(x)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # what comes in goes out, also under a mixed-precision policy
