"""What ``%tnt_bench`` can measure, and what may follow each: for checks, help, completion."""

from __future__ import annotations

from tnt_notebook.magics.action import Action
from tnt_notebook.magics.input_options import FLAGS
from tnt_notebook.plan.options import OPTIONS

ACTIONS = {
    "allreduce": Action(
        "how fast the ranks exchange, by size and algorithm",
        flags=(
            "--max-mb", "--dtype", "--algorithms", "--in-place", "--rounds", "--save", "--name",
        ),
    ),
    "training": Action(
        "how a cell scales, on more and more of the ranks",
        which="WORKLOAD",
        flags=(
            "--ranks", "--strong", "--weak", "--rounds", "--steps", "--until", "--watts",
            "--exchange", "--bucket-mb", "--batch-norm", "--mesh", "--layout",
            *(flag for flag, _ in OPTIONS.values()), "--report", "--force", "--name",
        ),
    ),
    "rules": Action("which algorithm is taken when; measures nothing"),
    "input": Action(
        "what loaders deliver to the ranks, by format and storage; or a dataset of yours",
        "DATASET",
        (*FLAGS, "--name"),
    ),
}  # fmt: skip
