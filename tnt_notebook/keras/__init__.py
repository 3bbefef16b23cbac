"""What tnt_notebook adds to Keras: ``tnt.keras.layers``, ``tnt.keras.large_batch``. Loads
TensorFlow."""

from __future__ import annotations

from tnt_notebook.keras import large_batch, layers

__all__ = ["large_batch", "layers"]
