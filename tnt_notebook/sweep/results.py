"""What has come of a sweep: a table for pandas; and trials of before, as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tnt_notebook.errors import SweepError
from tnt_notebook.sweep.board import Board, Row, TrialState

if TYPE_CHECKING:
    import optuna


def frame_of(board: Board) -> Any:
    """A row for each trial, as a pandas DataFrame.

    Raises:
        SweepError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise SweepError("A DataFrame needs pandas: pip install pandas.") from error
    columns = [
        "trial", *board.space, "state", board.objective.name, "epoch", "step_s", "seconds", "ranks",
        "error",
    ]  # fmt: skip
    rows = [
        [
            row.number, *row.settings.values(), row.state, row.value, row.epoch, row.step_s,
            row.seconds, list(row.ranks), row.error,
        ]
        for row in board.rows
    ]  # fmt: skip
    return pandas.DataFrame(rows, columns=columns)


def row_of(trial: optuna.trial.FrozenTrial, is_cut: bool = False) -> Row:
    """A trial that a file holds.

    Args:
        is_cut: whether its sweep ended before it.
    """
    known = trial.user_attrs
    state: TrialState = known.get("state", "failed")
    state = "cut off" if is_cut else state
    return Row(
        trial.number, dict(trial.params), state,
        known.get("ranks", ()), known.get("epoch", 0), known.get("epochs", 0), known.get("reached"),
        known.get("step_s"), known.get("seconds", 0.0), known.get("error", ""),
    )  # fmt: skip
