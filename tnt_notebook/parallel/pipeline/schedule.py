"""Another name of :mod:`tnt_notebook.plan.schedule`, for cells that import it from here."""

from __future__ import annotations

from tnt_notebook.plan.schedule import Action, Schedule

__all__ = ["Action", "Schedule"]
