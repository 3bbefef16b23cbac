"""What tnt_notebook adds to Keras: ``tnt.keras.layers``, ``tnt.keras.large_batch``. Loads
TensorFlow. From then on ranks download one after the other what Keras downloads."""

from __future__ import annotations

from tnt_notebook.keras import downloads, large_batch, layers

__all__ = ["large_batch", "layers"]

downloads.install()
