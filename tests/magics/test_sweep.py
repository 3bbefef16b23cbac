"""A cell of %%tnt_sweep, from its line to the handle."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.magics.test_commands import typed
from tests.support.cells import TRAIN

CELL = TRAIN.format(epochs=1).replace('"sgd"', "keras.optimizers.SGD(rate)")


def test_a_sweep_in_a_cell(shell_with_ranks, tmp_path):
    shell = shell_with_ranks
    line = "%%tnt_sweep rate=0.1|0.01 --sampler grid --objective loss --name rates --wait"
    shown = typed(shell, f"{line} --track tensorboard:{tmp_path}\n{CELL}")
    boards = [EventAccumulator(str(path)).Reload() for path in tmp_path.glob("rates/rates-*")]
    assert len(boards) == 2 and all(board.Tensors("loss")[0].step == 1 for board in boards)
    rates = shell.user_ns["rates"]
    assert (rates.state, rates.best.settings) == ("finished", {"rate": 0.1})
    assert "rates: live view of a sweep" in shown and "2 of 2 trials ended" in repr(rates)
    assert "UsageError: the cell does not use depth" in typed(
        shell, f"%%tnt_sweep depth=1..3\n{CELL}"
    )
    assert "--each 3: the cluster has 2 ranks" in typed(
        shell, f"%%tnt_sweep rate=0..1 --each 3\n{CELL}"
    )
    assert "--mesh: " in typed(shell, f"%%tnt_sweep rate=0..1 --each 2 --mesh model=3\n{CELL}")
    shown = typed(shell, f"{line.replace('loss', 'f1:max')}\n{CELL}")
    assert "ModelError: The fit of the cell does not report f1. It reports loss: name" in shown
    assert "rates has failed" not in typed(shell, "1")  # it was raised


def test_help_in_a_cell_of_one_line(shell):
    shown = typed(shell, "%%tnt_sweep -h")
    assert "%%tnt_sweep: Runs ordinary Keras code repeatedly" in shown
    assert "--each R" in shown and len(shown.splitlines()) < 80
