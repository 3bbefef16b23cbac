"""Models cut into stages, each on a rank of its own, and the order in which ranks run them."""

from __future__ import annotations

from tnt_notebook.plan import Action, Pipeline, Schedule

__all__ = ["Action", "Pipeline", "Schedule"]
