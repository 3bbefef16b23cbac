"""Builds the site without TensorFlow, Keras and MPI, which take long to load.

The reference needs docstrings and signatures only. They are left out for the whole build: autodoc
imports modules also outside of its own ``autodoc_mock_imports``.
"""

import sys
from typing import Any

from sphinx.ext.autodoc.mock import MockFinder

sys.meta_path.insert(0, MockFinder(["keras", "mpi4py", "tensorflow"]))

from tnt_notebook.comm import ops  # noqa: E402  imported without TensorFlow

ops.library = lambda: None  # what is loaded into TensorFlow with the scope of training


def setup(_: Any) -> dict[str, bool]:
    """What it does is done when it is imported."""
    return {"parallel_read_safe": True}
