"""Checkpoints: the state of a run, kept while it trains, from which it goes on later.

Importing this package loads no TensorFlow.
"""

from __future__ import annotations

from tnt_notebook.parallel.checkpoint.config import Checkpoint

__all__ = ["Checkpoint"]
