"""``%%tnt_fit --plan``: trains as a plan says that was looked for, kept in a variable or a file."""

import pytest

from tests.magics.test_commands import typed
from tests.plan.test_prediction import planned
from tnt_notebook.dashboard.reports.plans import Plans
from tnt_notebook.plan.best import Way
from tnt_notebook.plan.promise import options_of

CELL = """
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.default_rng(1).random((64, 8), "float32")
y = x.sum(1, keepdims=True)
layers = [keras.layers.Dense(8, "tanh") for _ in range(2)]
model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=4, epochs=3)
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--plan auto --pipeline 2", "--plan: not with --pipeline, which the plan sets"),
        ("--plan plan --micro-batches 2 --recompute", "not with --micro-batches, --recompute, whi"),
        ("--plan plan --memory-limit 1GB", "--plan: not with --memory-limit, which the plan sets"),
        ("--plan auto --mesh model=2 --layout a:rows=model", "not with --mesh, --layout, which"),
        ("--plan auto --shares 3,1", "--plan: not with --shares, which the plan sets"),
        (
            "--shares 3,x",
            "shares are whole numbers greater than 0, one for each replica, as in 3,1",
        ),
        ("--shares 3,1 --on-failure shrink", "shares are of all ranks; use restart"),
        ("--plan nothing", "--plan nothing: it is no variable that holds a plan, and no file is"),
        ("--plan number", "--plan number: it is not a plan, and no file is called so; write auto"),
        ("--plan empty", "--plan empty: there is no plan in it"),
        ("--plan one", "--plan one: one plan alone does not know its options; take a slice of pla"),
        ("--plan broken.json", "--plan: broken.json holds no plans, or is damaged"),
        ("--plan auto --on-failure shrink", "--on-failure shrink: a plan is for all ranks; use re"),
        ("--plan", "argument --plan: expected one argument"),
    ],
)
def test_what_it_cannot_be(shell, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("[]")
    plan = Plans([(planned(), options_of(Way.of(planned())))])
    shell.push({"plan": plan, "one": plan[0], "empty": plan[1:], "number": 3})
    said = typed(shell, f"%%tnt_fit {options}\n1")
    assert said.startswith("UsageError: ") and message in said and len(said.splitlines()) == 1


def test_a_plan_is_followed(shell_with_ranks, tmp_path, monkeypatch):
    shell = shell_with_ranks
    monkeypatch.chdir(tmp_path)
    fits, weights = {}, {}

    def fit(name, options):
        said = typed(shell, f"%%tnt_fit --wait --name {name} {options}\n{CELL}")
        fits[name] = shell.user_ns[name]
        assert fits[name].state == "finished", said
        weights[name] = fits[name].model.get_weights()
        return said

    said = fit("looked", "--plan auto")
    line = next(line for line in said.splitlines() if "plan: " in line)
    assert " on 2 ranks, " in line and " times one rank: " in line and "of 4 samples" in line

    said = typed(shell, "%tnt_plan --batch-size 4 --pipeline 2 --micro-batches 2 --schedule all")
    assert " by plan on these ranks: steps took " in said
    plan = shell.user_ns["plan"]
    assert isinstance(plan, Plans) and plan.step_s == min(one.step_s for one in plan)
    options = plan.apply()
    assert options == f"--pipeline 2 --micro-batches 2 --schedule {plan.schedule}"
    cell = shell.rl_next_input.splitlines()
    assert cell[0] == f"%%tnt_fit {options}" and cell[1].endswith(" a step of 4 samples")
    plan.save("plan.json")
    fit("named", "--plan plan")
    fit("saved", "--plan plan.json")
    fit("typed", options)
    shell.push({"shared": Plans([(plan[0], {"exchange": "sharded"})])})
    fit("shared", "--plan shared")
    assert "whole copies, sharded, on 2 ranks" in fits["shared"].frames[0]["plan"]
    fit("uneven", "--shares 3,1")
    for name in ("named", "saved", "looked", "shared", "uneven"):
        for a, b in zip(weights["typed"], weights[name], strict=True):
            assert abs(a - b).max() < 1e-5
    for name in ("named", "saved"):
        assert fits[name].timeline.schedule == fits["typed"].timeline.schedule == plan.schedule
        assert (
            f"plan: 1 x 2 stages, 2 micro-batches, {plan.schedule}" in fits[name].frames[0]["plan"]
        )
        assert fits[name].promised_step_s == pytest.approx(plan.step_s, rel=1e-3)
    assert fits["typed"].promised_step_s is None and "plan" not in fits["typed"].frames[0]

    typed(shell, "%tnt_plan --batch-size 4 --ranks 4 --name four")
    refused = typed(shell, f"%%tnt_fit --plan four\n{CELL}")
    assert refused.startswith(
        "UsageError: --plan: The plan is for 4 ranks, and there are 2. Plan f"
    )
    study = typed(shell, "%tnt_bench training looked")
    assert "UsageError: --plan auto: not in a study" in study
