"""A cell of %%tnt_fit trains a model in stages."""

import pytest

from tests.magics.test_commands import typed
from tnt_notebook.errors import ModelError
from tnt_notebook.plan.schedule import Action

CELL = """
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.default_rng(1).random((64, 8), "float32")
y = x.sum(1, keepdims=True)
first, last = keras.layers.Dense(8, "tanh", name="first"), keras.layers.Dense(1, name="last")
model = keras.Sequential([keras.Input((8,)), first, last])
model.compile("adam", "mse", metrics=["mae"])
history = model.fit(x, y, batch_size=16, epochs=3, validation_split=0.25)
"""


OWN_SCHEDULE = """
import tnt_notebook as tnt
from tnt_notebook.plan import Action, Schedule

def last_in_first_out(ranks, micro_batches, stages_per_rank):
    micros = range(micro_batches)
    actions = [
        [*(Action("F", r, m) for m in micros), *(Action("B", r, m) for m in reversed(micros))]
        for r in range(ranks)
    ]
    return Schedule("lifo", tuple(range(ranks)), micro_batches, tuple(map(tuple, actions)))
"""


def test_a_schedule_of_ones_own_in_a_cell(shell_with_ranks):
    shell = shell_with_ranks
    wrapped = "model = tnt.Model(model, pipeline=tnt.Pipeline(2, 4, last_in_first_out))\nhistory ="
    cell = OWN_SCHEDULE + CELL.replace("history =", wrapped)
    typed(shell, f"%%tnt_fit --wait --name own\n{cell}")
    fit = shell.user_ns["own"]
    assert (fit.state, fit.timeline.schedule, fit.timeline.micro_batches) == ("finished", "lifo", 4)
    assert fit.history["loss"] and fit.model.layers
    shown = typed(shell, "%%tnt_fit --placement replicas\n1")
    assert "--placement: only with --pipeline" in shown


def test_a_pipeline_in_a_cell(shell_with_ranks):
    shell = shell_with_ranks
    typed(shell, f"%%tnt_fit --wait --name whole\n{CELL}")
    of_whole = shell.user_ns["whole"].model
    options = "--pipeline 2 --micro-batches 4 --schedule zb-h1 --cut-at last --recompute"
    typed(shell, f"%%tnt_fit --wait --name staged {options}\n{CELL}")
    whole, staged = shell.user_ns["whole"], shell.user_ns["staged"]
    assert whole.state == staged.state == "finished"
    assert set(staged.history) == {"loss", "mae", "val_loss", "val_mae"}
    for name, values in whole.history.items():
        for a, b in zip(values, staged.history[name], strict=True):
            assert abs(a - b) < 1e-5 * abs(a), name
    for a, b in zip(of_whole.get_weights(), staged.model.get_weights(), strict=True):
        assert abs(a - b).max() < 1e-5
    step = staged.timeline
    assert (step.schedule, step.ranks, step.micro_batches, step.measured) == ("zb-h1", 2, 4, True)
    assert sorted(map(str, (span.action for span in step.spans))) == sorted(
        f"{kind}{stage}.{micro}"
        for kind in "FIW"
        for stage in range(2)
        for micro in range(4)
        if (kind, stage) != ("I", 0)  # nobody wants the gradient of the input
    )
    # An action's end is noted when its values are on their way: they may have arrived by then.
    begins = {span.action: span.begin for span in step.spans}
    for span in step.spans:
        if span.action.kind == "F" and span.action.stage == 1:
            assert span.begin > begins[Action("F", 0, span.action.micro)]
    assert min(span.begin for span in step.spans) == 0 < step.bubble < 1
    assert "as measured" in staged.plot_timeline().layout.annotations[0].text
    for of_rank in staged.breakdown:
        assert 0 < of_rank.work < of_rank.step and of_rank.wait > 0
    assert [of_rank.wait for of_rank in whole.breakdown] == [0, 0]
    assert "where a step goes" in staged.plot_breakdown().layout.annotations[0].text
    with pytest.raises(ModelError, match="whole has no timeline: only pipelines have one"):
        _ = whole.timeline
    shown = typed(shell, f"%%tnt_fit --wait --pipeline 3\n{CELL}")
    assert "2 ranks cannot form pipelines of 3 stages" in shown
    shown = typed(shell, f"%%tnt_fit --wait --pipeline 2 --cut-at lost\n{CELL}")
    assert "cut_at names 'lost', and the model has no such layer. Is it 'last'?" in shown
    assert typed(shell, "%%tnt\nprint('still here')") == "ranks 0-1: still here\n"


def test_stages_on_a_mesh_in_a_cell(shell_with_ranks):
    shell = shell_with_ranks
    for options, shown in (
        ("--mesh stage=2,model=2", "--mesh: The mesh stage=2,model=2 needs"),
        ("--mesh stage=2 --pipeline 1", "has 2 stages, and the pipeline 1: give it once"),
        ("--mesh stage=2 --placement replicas", "leave out the placement of the pipeline"),
        ("--mesh model=2 --micro-batches 4", "--micro-batches: only with --pipeline"),
    ):
        assert shown in typed(shell, f"%%tnt_fit {options}\n{CELL}")
    typed(shell, f"%%tnt_fit --wait --name alone --pipeline 1\n{CELL}")
    alone = shell.user_ns["alone"].model
    typed(shell, f"%%tnt_fit --wait --name meshed --mesh stage=1,model=2 --micro-batches 4\n{CELL}")
    meshed = shell.user_ns["meshed"]
    assert meshed.state == "finished"
    for a, b in zip(alone.get_weights(), meshed.model.get_weights(), strict=True):
        assert abs(a - b).max() < 1e-5
    shown = typed(shell, "%tnt_bench training --ranks 1,2 meshed")
    assert "StudyError: --ranks 1: The mesh stage=1,model=2 needs a multiple of 2 ranks" in shown
