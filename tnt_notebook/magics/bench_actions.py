"""What ``%tnt_bench`` can measure, and what may follow each: for checks, help, completion."""

from __future__ import annotations

from tnt_notebook.magics.action import Action

ACTIONS = {
    "allreduce": Action(
        "how fast the ranks exchange, by size and algorithm",
        flags=(
            "--max-mb", "--dtype", "--algorithms", "--in-place", "--rounds", "--save", "--name",
        ),
    ),
    "rules": Action("which algorithm is taken when; measures nothing"),
}  # fmt: skip
