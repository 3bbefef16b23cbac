"""Pipelines as plain numbers: what is asked for, in which order ranks work, and what to expect.

Ranks and notebook both use it: it loads neither TensorFlow nor MPI, and knows no other room.
"""

from __future__ import annotations

from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.plan.mesh import Mesh, Split
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.schedule import Action, Schedule

__all__ = ["FAMILIES", "Action", "Mesh", "Pipeline", "Schedule", "Split"]
