"""Plans in a file: what is saved is what is read, and nothing else is taken for a plan."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_prediction import planned
from tnt_notebook.errors import PlanError, ScheduleError
from tnt_notebook.plan import saved_plans
from tnt_notebook.plan.best import Way
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.plan.fit_options import FitOptions, typed_so
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.prediction import InputPlan, with_input
from tnt_notebook.plan.promise import Promise, options_of


@st.composite
def ways(draw):
    """A plan, and the options of fits by it."""
    name = draw(st.sampled_from(sorted(FAMILIES)))
    begins = (1, 2, 3) if FAMILIES[name].stages_per_rank == 2 else (2,)
    numbers = {"micro_batches": draw(st.integers(1, 6)), "replicas": draw(st.integers(1, 9))}
    plan = planned(name, begins=begins, **numbers)
    if draw(st.booleans()):
        plan = with_input(
            plan, InputPlan(draw(st.sampled_from(["train", "é\n"])), "", draw(st.floats(0.1, 1e6)))
        )
    plan = dataclasses.replace(plan, exchange_s=draw(st.floats(0, 1e3)))
    return plan, options_of(Way.of(plan), draw(st.none() | st.integers(1, 1 << 50)))


@given(st.lists(ways(), min_size=1, max_size=3))
def test_what_is_saved_is_read(tmp_path_factory, plans):
    path = saved_plans.write(plans, tmp_path_factory.mktemp("plans") / "plan.json", force=False)
    assert saved_plans.read(path) == plans
    plan, options = plans[0]
    promise = saved_plans.promised(path)
    assert promise == Promise.of(plan, options)
    assert (promise.step_s, promise.rank_bytes) == (plan.step_s, max(plan.rank_bytes))
    by_plan = FitOptions(plan=str(path))
    assert by_plan.pipeline == Pipeline(**options["pipeline"]) and by_plan.plan == promise
    assert FitOptions(**vars(by_plan)) == by_plan  # as ranks do it
    assert by_plan.mesh_of(promise.ranks).size == promise.ranks
    with pytest.raises(ScheduleError, match=r"The plan is for \d+ ranks, and there (is|are) \d+\."):
        by_plan.mesh_of(promise.ranks + 1)


def test_a_file_is_not_lost(tmp_path):
    path, plans = tmp_path / "plan.json", [(planned(), options_of(Way.of(planned())))]
    saved_plans.write(plans, path, force=False)
    with pytest.raises(FileExistsError, match="is there already; force=True replaces it"):
        saved_plans.write(plans * 2, path, force=False)
    assert len(saved_plans.read(path)) == 1
    assert len(saved_plans.read(saved_plans.write(plans * 2, path, force=True))) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]


def damaged():
    """By what is wrong, how it comes about."""
    return {
        "it is something else": lambda data: {"epochs": 3},
        "it holds no plan": lambda data: data | {"plans": []},
        "there is no option 'stages'": lambda data: _first(data, options={"stages": 2}),
        "there is no schedule '2f2b'": lambda data: _first(
            data, options={"pipeline": {"stages": 2, "schedule": "2f2b"}}
        ),
        "at least one stage": lambda data: _first(data, options={"pipeline": {"stages": 0}}),
        "[] is no": lambda data: _first(data, options=[]),
        "spans": lambda data: {**data, "plans": [{**data["plans"][0], "plan": {"stages": []}}]},
        "batch_size": lambda data: _of_plan(data, batch_size=0),
        "must be real number": lambda data: _of_plan(data, batch_size="many"),
    }


def _first(data, **instead):
    return {**data, "plans": [{**data["plans"][0], **instead}]}


def _of_plan(data, **instead):
    return _first(data, plan={**data["plans"][0]["plan"], **instead})


@pytest.mark.parametrize("why", damaged())
def test_what_is_damaged_is_refused(tmp_path, why):
    path = tmp_path / "plan.json"
    saved_plans.write([(planned(), options_of(Way.of(planned())))], path, force=False)
    path.write_text(json.dumps(damaged()[why](json.loads(path.read_text()))))
    with pytest.raises(PlanError, match=r"plan\.json holds no plans, or is damaged") as raised:
        saved_plans.read(path)
    assert why in str(raised.value)


def test_what_is_no_file_of_plans_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        saved_plans.read(path)
    path.write_text("{")
    with pytest.raises(PlanError, match="is damaged"):
        saved_plans.read(path)
    path.write_text('{"tnt_notebook_plans": 1}')
    with pytest.raises(PlanError, match="has version 1 of saved plans, and this tnt_notebook read"):
        saved_plans.read(path)


def test_options_that_a_plan_sets_are_not_given_beside_it():
    promise = Promise.of(planned(), options_of(Way.of(planned())))
    with pytest.raises(ValueError, match="pipeline is set by the plan: leave it out"):
        FitOptions(plan=promise, pipeline=Pipeline(3))
    with pytest.raises(ValueError, match="pipeline is set by the plan: leave .* plan='auto'"):
        FitOptions(plan="auto", pipeline=Pipeline(3))
    assert FitOptions(plan="auto", memory_limit="1GB").mesh_of(2) is None


def test_what_to_type_for_a_plan():
    way = Way(1, 2, "zb-h1", 4, recompute=True)
    typed = "--pipeline 2 --micro-batches 4 --schedule zb-h1 --recompute"
    assert " ".join(typed_so(options_of(way))) == way.typed == typed
    assert options_of(Way(4)) == {} and typed_so({}) == []
    limited = options_of(Way(1, 2), 1000)
    assert typed_so(limited)[-1] == "--memory-limit 1000" and typed_so({"plan": "auto"}) == [
        "--plan auto"
    ]
