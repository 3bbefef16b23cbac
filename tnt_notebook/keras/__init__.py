"""What tnt_notebook adds to Keras: ``tnt.keras.layers``. Loads TensorFlow."""

from __future__ import annotations

from tnt_notebook.keras import layers

__all__ = ["layers"]
