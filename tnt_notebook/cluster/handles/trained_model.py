"""A model that ranks have trained, in the notebook."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tnt_notebook.cluster.output.banner import banner_left_out
from tnt_notebook.errors import ModelError


def load_model(file: bytes) -> Any:
    """A Keras model from the bytes of a ``.keras`` file; loads Keras here.

    Raises:
        ModelError: it cannot be rebuilt here; the message says what to do.
    """
    # The GPUs are the ranks': looking at a model must not take all of their memory.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with banner_left_out():
        return _loaded(file)


def _loaded(file: bytes) -> Any:
    import keras

    import tnt_notebook.keras  # noqa: F401  its layers may be in the model

    with tempfile.TemporaryDirectory(prefix="tnt-model-") as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(file)
        try:
            return keras.saving.load_model(path)
        except (TypeError, ValueError) as error:
            raise ModelError(
                "The trained model cannot be rebuilt in the notebook, most likely because it uses "
                "a class that only the ranks know. Define the class in a notebook cell as well, "
                "with @keras.saving.register_keras_serializable(), and ask for .model again. "
                f"Keras reports: {error}"
            ) from error
