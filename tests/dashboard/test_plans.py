"""What ``%tnt_plan`` leaves in a variable: a table, sentences, a file."""

import copy
import pickle

import pytest

from tests.plan.test_prediction import PROFILE, planned
from tnt_notebook.dashboard.reports.plan_terms import TERMS
from tnt_notebook.dashboard.reports.plans import Plans
from tnt_notebook.errors import PlanError
from tnt_notebook.plan.best import Way
from tnt_notebook.plan.network import Link
from tnt_notebook.plan.prediction import InputPlan, with_input
from tnt_notebook.plan.profile import trained_so
from tnt_notebook.plan.promise import options_of


def plans(*found):
    return Plans([(plan, options_of(Way.of(plan))) for plan in found])


ALONE = planned(ranks=1, micro_batches=1, begins=(), replicas=2)
TWO = plans(planned(), ALONE)


def test_it_is_a_sequence_of_plans():
    assert len(TWO) == 2 and list(TWO) == [TWO[0], TWO[1]] == [planned(), ALONE]
    assert TWO[-1] == ALONE and TWO.step_s == 24 and TWO[1:].replicas == 2
    assert TWO[:1] == plans(planned()) != TWO
    assert copy.copy(TWO) == pickle.loads(pickle.dumps(TWO)) == TWO
    assert repr(TWO) == (
        "<Plans: 2 ways to train on 2 ranks, the fastest --pipeline 2 --micro-batches 2 --schedule "
        "1f1b: 1.3 samples/s, 1.33 times one rank>"
    )
    assert repr(TWO[2:]) == "<Plans: none>" and "fastest whole copies" in repr(TWO[1:])
    with pytest.raises(PlanError, match="There is no plan here"):
        TWO[2:].apply()
    with pytest.raises(AttributeError):
        _ = TWO.nothing


def test_what_there_is_on_other_numbers_of_ranks():
    rows = [{"ranks": 1, "samples_per_s": 3.0}, {"ranks": 2, "samples_per_s": 5.0}]
    found = Plans([(ALONE, {})], rows)
    assert (
        found.by_ranks == found[:1].by_ranks == pickle.loads(pickle.dumps(found)).by_ranks == rows
    )
    found.by_ranks[0]["ranks"] = 7
    assert found.by_ranks == rows and TWO.by_ranks == []


def test_a_table_of_ways():
    table = TWO.to_dataframe()
    assert table.options.tolist() == ["--pipeline 2 --micro-batches 2 --schedule 1f1b", ""]
    first = table.iloc[0]
    assert (first.ranks, first.replicas, first.stages, first.micro_batches) == (2, 1, 2, 2)
    assert (first.step_s, first.compute_s, first.bubble_s, first.limited_by) == (
        24,
        16,
        8,
        "bubble",
    )
    assert first.rank_bytes == 734 and not first.recompute


def test_every_term_is_explained():
    assert plans(planned()).explain("compute") == (
        "A rank computes for 16 s (67% of a step) on average, for 2 micro-batches of 16 samples: "
        "of each, stage 0 on rank 0 2 s forward and 6 s backward; stage 1 on rank 1 2 s forward "
        "and 6 s backward. More ranks share it among them; smaller batches lower it, and samples/s "
        "with it."
    )
    told = {term: TWO.explain(term) for term in TERMS}
    assert told["bubble"].startswith("Ranks wait for 8 s (33% of a step) until the first micro-")
    assert "by the formula" in told["bubble"] and "zb-h1" in told["bubble"]
    assert told["exchange"].startswith("There is no exchange: there is one replica")
    assert told["input"].startswith("Nothing is known of input.")
    assert told["memory"] == (
        "Rank 0 of a replica needs most, 734 B: weights 80 B, gradients 80 B, optimizer 160 B, "
        "activations 414 B, with 2 micro-batches under way at most. Smaller batches, more stages, "
        "--recompute or an optimizer with less state lower it."
    )
    uneven = plans(planned(begins=(3,))).explain("imbalance")
    assert uneven.startswith("Stages that take different times cost 1 s (4% of a step). Stage 0 (a")
    assert "200 B in a step" in plans(planned(micro_batches=1)).explain("messages")
    again = plans(planned(profile=trained_so(PROFILE, True, True)))
    assert "without it they are shorter" in again.explain("compute")
    assert "--recompute" not in again.explain("memory")
    exchanged = plans(planned(replicas=2, link=Link(1.0, 1e9))).explain("exchange")
    assert "2 replicas add up 80 B of the rank that has most" in exchanged
    fed = plans(with_input(planned(), InputPlan("train", "", 1.0)))
    assert "a step waits 8 s for it. %tnt_bench input train" in fed.explain("input")
    fast = plans(with_input(planned(), InputPlan("train", "", 1e3))).explain("input")
    assert "it is there before the 24 s are over" in fast
    for term in ("bubble", "imbalance", "messages"):
        assert plans(ALONE).explain(term).startswith("There ")
    with pytest.raises(PlanError, match="no term 'bubbel': did you mean bubble. compute, bubble, "):
        TWO.explain("bubbel")


def test_plans_are_saved_and_opened(tmp_path):
    path = TWO.save(tmp_path / "plan.json")
    assert Plans.open(path) == TWO
    with pytest.raises(FileExistsError, match="force=True"):
        TWO[1:].save(path)
    assert Plans.open(TWO[1:].save(str(path), force=True)) == plans(ALONE)
    assert TWO.apply() == "--pipeline 2 --micro-batches 2 --schedule 1f1b"  # here is no notebook
