"""Measuring how fast ranks exchange, and what follows from it."""

import json

import numpy as np
import pytest

from tnt_notebook import comm
from tnt_notebook.comm import schedules, tuning
from tnt_notebook.comm.rules import Rule
from tnt_notebook.comm.tuning.conclude import best_of, fit_of, relative_of

KB = 1024


def measured(options):
    """The result, and how many reports came."""
    reports = []
    question = tuning.Question(**options)
    return tuning.measure(comm.world(), question, reports.append), len(reports)


@pytest.mark.parametrize(
    ("n", "options", "world", "links"),
    [
        (2, {}, None, "shared memory"),
        (3, {"in_place": True, "dtype": "bfloat16"}, None, "shared memory"),
        (4, {"dtype": "int64", "algorithms": ("double_tree", "ring")}, None, "shared memory"),
        (3, {"in_place": True}, {"transport": "mpi"}, "mpi"),
        (4, {}, {"nodes": (0, 0, 1, 1)}, "shared memory, mpi between 2 nodes"),
        (4, {"in_place": True}, {"nodes": (0, 1, 0, 0)}, "shared memory, mpi between 2 nodes"),
        (3, {}, {"lanes": 2}, "shared memory"),
    ],
)
def test_all_ranks_get_the_same_times_of_all_algorithms(ranks, n, options, world, links):
    question = {"max_bytes": 16 * KB, "rounds": 3} | options
    answers = ranks.run(n, measured, question, world=world)
    result, reports = answers[0]
    assert all(answer == (result, reports) for answer in answers)
    assert reports == 3 * (3 + 1)
    assert json.loads(json.dumps(result)) == result
    names = {entry["algorithm"] for entry in result["entries"]}
    fewest = {"ring", "double_tree"}
    assert names == fewest if "algorithms" in options else names > fewest
    assert len(result["entries"]) == 3 * len(names)
    assert [entry["bytes"] for entry in result["limit"]] == [KB, 4 * KB, 16 * KB]
    assert min(entry["relative"] for entry in result["entries"]) == 1
    for entry in [*result["entries"], *result["limit"]]:
        assert 0 < entry["low_s"] <= entry["median_s"] <= entry["high_s"]
        moved = 2 * (n - 1) / n * entry["bytes"]
        assert entry["bus_bytes_per_s"] == pytest.approx(moved / entry["median_s"])
    assert {use["algorithm"] for use in result["rules"]} <= set(schedules.names("allreduce"))
    assert {fit["algorithm"] for fit in result["fits"]} == names
    assert (result["ranks"], result["links"]) == (n, links)


def refused(options):
    with pytest.raises(ValueError) as error:
        tuning.measure(comm.world(), tuning.Question(**options))
    return str(error.value)


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (1, {}, "A single rank has no peer to exchange with"),
        (2, {"algorithms": ["rign"]}, "Algorithm 'rign' is not one of ring, "),
        (2, {"algorithms": ["hierarchical"]}, "'hierarchical' does not fit 2 ranks on 1 node(s)"),
        (2, {"dtype": "int8"}, "dtype 'int8' is not one of float32, "),
        (2, {"rounds": 0}, "at least one is needed"),
        (2, {"max_bytes": 100}, "The smallest vector has 1 KB"),
    ],
)
def test_a_question_without_sense_is_refused_on_all_ranks(ranks, n, options, message):
    answers = ranks.run(n, refused, options)
    assert len(set(answers)) == 1 and message in answers[0]


# What times say -------------------------------------------------------------------------------


def entries(**times: list[float]) -> list[dict]:
    return [
        {"algorithm": name, "bytes": KB * 4**i, "median_s": seconds, "relative": seconds}
        for name, of_sizes in times.items()
        for i, seconds in enumerate(of_sizes)
    ]


def test_ratios_of_neighbours_count_where_the_speed_of_the_machine_changes():
    speed = np.array([1, 1, 1, 5, 5])
    times = {"a": 2 * speed, "b": 3 * speed, "c": np.array([3, 3, 3, 3, 3])}
    assert relative_of(times)[:2] == pytest.approx([1, 1.5])


def test_a_fit_finds_the_latency_and_the_rate_of_a_line():
    times = [5e-6 + KB * 4**i / 2e9 for i in range(8)]
    fit = fit_of(entries(ring=times))
    assert fit == {"latency_s": pytest.approx(5e-6), "bytes_per_s": pytest.approx(2e9)}


def test_a_fit_is_never_negative():
    assert fit_of(entries(ring=[3e-6, 2e-6, 1e-6]))["bytes_per_s"] is None
    steep = fit_of(entries(ring=[1e-9, 1e-6, 1e-3]))
    assert steep["latency_s"] == 0 and steep["bytes_per_s"] > 0
    assert fit_of(entries(ring=[2e-6]))["latency_s"] == pytest.approx(2e-6)


def test_the_best_algorithm_changes_half_way_between_sizes():
    best = best_of(entries(a=[1.0, 2.0, 9.0, 9.0], b=[2.0, 3.0, 4.0, 5.0]))
    assert best == [
        {"algorithm": "a", "from_bytes": 0, "up_to_bytes": 8 * KB},
        {"algorithm": "b", "from_bytes": 8 * KB, "up_to_bytes": None},
    ]


def test_an_algorithm_that_is_nearly_as_good_goes_on():
    best = best_of(entries(a=[1.0, 2.04, 4.0], b=[1.04, 2.0, 4.1]))
    assert [part["algorithm"] for part in best] == ["a"]


def test_the_best_become_rules_for_as_many_ranks():
    result = {
        "collective": "allreduce", "ranks": 6, "nodes": 2, "in_place": True, "links": "mpi",
        "best": best_of(entries(a=[1.0, 9.0], b=[2.0, 3.0])),
        "limit": [{"bytes": KB}, {"bytes": 4 * KB}],
    }  # fmt: skip
    small, large = tuning.rules_of(result)
    assert small.measured == large.measured and small.measured.endswith(", mpi")
    of_six = {"nodes": "many", "min_ranks": 6, "max_ranks": 6, "in_place": True}
    of_six["measured"] = small.measured
    assert small == Rule("allreduce", "a", 2 * KB, **of_six)
    assert large == Rule("allreduce", "b", 8 * KB, **of_six)  # twice what was measured
