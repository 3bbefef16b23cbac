"""What TensorFlow knows of a graph that is being traced. The same from TensorFlow 2.16 to 2.21."""

from __future__ import annotations

from typing import Any


def share_functions(source: Any, target: Any) -> None:
    """Makes the functions that ops of a graph call known in another one, and keeps them alive.

    Args:
        source, target: graphs of tf.functions.
    """
    for function in source._functions.values():
        target._add_function_recursive(function)
