"""Ranks that die under ULFM: the others are told who, and go on without them."""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.comm import job
from tests.support.cases import latin
from tests.support.hosts import hosts, needed
from tests.support.rank_pool import rank_environment
from tnt_notebook import comm
from tnt_notebook.cluster.launch.command import SURVIVAL

PROGRAM = "from tests.comm.survivors import main\nmain()\n"

#: Seconds until each survivor has been told, wherever it was.
TOLD_S = 2.0


def survivors(
    folder: Path, n: int, deaths: Sequence[dict[str, Any]], **world: Any
) -> list[list[dict[str, Any]]]:
    """What the ranks found that outlived each death, when the job has ended well."""
    arguments = json.dumps(world), json.dumps(deaths)
    found = found_in(job.run(folder, n, PROGRAM, *arguments, options=SURVIVAL)[1])
    assert not job.left(folder)
    return found


def found_in(output: str) -> list[list[dict[str, Any]]]:
    """What the ranks found, for each death."""
    assert not re.search("Traceback|Segmentation", output), output
    found: dict[int, list[dict[str, Any]]] = {}
    for line in re.findall(r"^FOUND (.*)", output, re.MULTILINE):
        one = json.loads(line)
        found.setdefault(one["death"], []).append(one)
    return [found[number] for number in sorted(found)]


def check(found: list[dict[str, Any]], members: Sequence[int], died: str) -> None:
    """All survivors, and only these, are in the same world, and were told in time."""
    assert sorted(one["seat"] for one in found) == list(members)
    for one in found:
        assert one["members"] == list(members)
        assert re.match(rf"PeerError: rank \d was freed .*, because {died}", one["told"]), one
        assert one["seconds"] < TOLD_S, one


def test_an_ordinary_job_does_not_outlive_a_rank(ranks):
    assert ranks.run(2, comm.survives) == [False] * 2


WORLDS = [{}, {"transport": "mpi"}, {"nodes": (0, 0, 1, 1)}]

#: Of how many ranks, one after another, who dies, who is left, and what these are told.
COURSES = {
    "one after another": (
        4,
        ({"amid": "exchange", "seats": [0]}, [1, 2, 3], "rank 0 has died on "),
        ({"amid": "rest", "seats": [2]}, [1, 3], r"rank 1 has died on .* \(seat 2\)"),
        ({"amid": "exchange", "seats": [1]}, [3], r"rank 0 has died on .* \(seat 1\)"),
    ),
    "while others recover": (
        4,
        ({"amid": "exchange", "seats": [3], "later": [0]}, [1, 2], "rank [03] has died on "),
    ),
    "amid steps of a graph": (
        3,
        ({"amid": "train", "seats": [0, 2]}, [1], "rank [02] has died on "),
    ),
    "and others take their seats": (
        3,
        ({"amid": "exchange", "seats": [0], "grow": True}, [1, 2], "rank 0 has died on "),
        ({"amid": "rest", "seats": [0, 2], "grow": True}, [1], "rank [02] has died on "),
        ({"amid": "exchange", "seats": [1]}, [0, 2], "rank 1 has died on "),
    ),
}


@pytest.mark.parametrize(
    ("world", "course"),
    [
        *latin(WORLDS, list(COURSES)[:2]),
        pytest.param(
            {"nodes": (0, 0, 1)}, "amid steps of a graph", marks=pytest.mark.thorough
        ),  # tests/cluster has deaths amid a fit
        ({}, "and others take their seats"),
        ({"link_mbit": 50.0}, "while others recover"),
    ],
    ids=str,
)
def test_those_who_live_are_told_who_died_and_go_on(tmp_path, world, course):
    n, *deaths = COURSES[course]
    found = survivors(tmp_path, n, [death for death, _, _ in deaths], **world)
    for ranks, (_, members, died) in zip(found, deaths, strict=True):
        check(ranks, members, died)
        assert all({*one["lost"]} == {*range(n)} - {*members} for one in ranks)


@needed
def test_ranks_die_on_several_hosts(tmp_path):
    deaths = [{"amid": "exchange", "seats": [0]}, {"amid": "rest", "seats": [3]}]
    with hosts(2) as rack:
        program = [sys.executable, "-c", PROGRAM, "{}", json.dumps(deaths)]
        environment = rank_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
        run = rack[0].run(
            [*rack.mpiexec(ranks_per_host=2), *SURVIVAL, *program],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
    first, second = found_in(run.stdout + run.stderr)
    check(first, [1, 2, 3], "rank 0 has died on node1")
    check(second, [1, 2], r"rank 2 has died on node2 \(seat 3\)")
    assert {one["host"] for one in second} == {"node1", "node2"}
