"""What is said, and how long is waited, where ranks have to share cores."""

import os

import pytest

from tnt_notebook.cluster.launch import oversubscription
from tnt_notebook.cluster.launch.request import request


@pytest.mark.parametrize(("cores", "ranks", "seconds"), [(2, 2, 60), (2, 64, 525), (8, 4, 60)])
def test_the_time_to_answer_grows_with_ranks_on_a_core(monkeypatch, cores, ranks, seconds):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    assert request(ranks).timeout_s == seconds
    assert request(ranks, timeout=7).timeout_s == 7  # as a person or a site says
    assert request(ranks, launcher="slurm").timeout_s == 180


@pytest.mark.parametrize(
    ("cores", "ranks", "said"),
    [
        (4, 4, ""),
        (2, 3, "3 ranks share the 2 cores of this machine, and train no faster than 2 ranks: -n 2 "
         "gives each its own."),
        (2, 64, "64 ranks share the 2 cores of this machine, and train no faster than 2 ranks: "
         "-n 2 gives each its own. Up to 9 min may pass until all answer."),
        (1, 3, "3 ranks share the only core of this machine, and train no faster than 1 rank: -n 1 "
         "gives each its own. Up to 90 s may pass until all answer."),
    ],
)  # fmt: skip
def test_ranks_that_share_a_core_are_warned_of(monkeypatch, cores, ranks, said):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    assert oversubscription.warning(ranks, "local", request(ranks).timeout_s) == said
    assert oversubscription.warning(ranks, "slurm", 180) == ""
