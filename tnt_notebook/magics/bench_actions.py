"""What ``%tnt_bench`` can measure, and what may follow each: for checks, help, completion."""

from __future__ import annotations

from tnt_notebook.magics.action import Action
from tnt_notebook.magics.input_options import FLAGS
from tnt_notebook.plan.fit_options import TYPED
from tnt_notebook.plan.options import OPTIONS

ACTIONS = {
    "allreduce": Action(
        "how fast the ranks exchange data, by size and algorithm",
        flags=(
            "--max-mb", "--dtype", "--algorithms", "--in-place", "--rounds", "--save", "--name",
        ),
    ),
    "training": Action(
        "how a cell scales with the number of ranks",
        which="WORKLOAD",
        flags=(
            "--ranks", "--strong", "--weak", "--rounds", "--steps", "--until", "--watts",
            *(flag for flag, _ in (*TYPED.values(), *OPTIONS.values())),
            "--report", "--force", "--name",
        ),
    ),
    "rules": Action("which algorithm is used when; measures nothing"),
    "input": Action(
        "what loaders, by format and storage, or your own dataset deliver to the ranks",
        "DATASET",
        (*FLAGS, "--name"),
    ),
}  # fmt: skip
