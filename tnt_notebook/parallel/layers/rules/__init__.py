"""The rules of Keras's own layers, a file a family."""

from __future__ import annotations

from tnt_notebook.parallel.layers.rules import (  # noqa: F401  each declares rules
    attention,
    convolution,
    dense,
    elementwise,
    embedding,
    normalization,
    pooling,
    reshaping,
)
