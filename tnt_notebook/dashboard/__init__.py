"""What a person sees of a run: the live card while it goes, a summary and a figure when it is over.

Notebook side; loads no TensorFlow and no MPI. `LiveView` is the whole of it for the other rooms.
"""

from __future__ import annotations

from tnt_notebook.dashboard.card.view import LiveView
from tnt_notebook.dashboard.figures.summary import summary

__all__ = ["LiveView", "summary"]
