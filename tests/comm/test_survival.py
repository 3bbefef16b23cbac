"""Ranks that die under ULFM: the others are told who, and go on without them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.comm import job
from tests.support.hosts import hosts, unavailable
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
    started = job.start(folder, n, PROGRAM, json.dumps(world), json.dumps(deaths), options=SURVIVAL)
    found = found_in(job.output_of(started, 120))
    left = [path for path in (folder / "tmp").rglob("*") if not path.is_dir()]
    left += [process for process in psutil.process_iter() if _is_of(process, folder)]
    assert not left
    return found


def found_in(output: str) -> list[list[dict[str, Any]]]:
    """What the ranks found, for each death."""
    assert not re.search("Traceback|Segmentation", output), output
    found: dict[int, list[dict[str, Any]]] = {}
    for line in re.findall(r"^FOUND (.*)", output, re.MULTILINE):
        one = json.loads(line)
        found.setdefault(one["death"], []).append(one)
    return [found[number] for number in sorted(found)]


def _is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        return str(folder / "script.py") in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


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


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_ranks_die_one_after_another_until_one_is_left(tmp_path, world):
    deaths = [
        {"amid": "exchange", "seats": [0]},
        {"amid": "rest", "seats": [2]},
        {"amid": "exchange", "seats": [1]},
    ]
    first, second, third = survivors(tmp_path, 4, deaths, **world)
    check(first, [1, 2, 3], "rank 0 has died on ")
    check(second, [1, 3], r"rank 1 has died on .* \(seat 2\)")
    check(third, [3], r"rank 0 has died on .* \(seat 1\)")
    assert third[0]["lost"] == [0, 1, 2]


def test_two_ranks_die_at_once_amid_the_steps_of_a_graph(tmp_path):
    [found] = survivors(tmp_path, 3, [{"amid": "train", "seats": [0, 2]}], nodes=(0, 0, 1))
    check(found, [1], r"rank [02] has died on ")


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_a_rank_dies_while_the_others_recover(tmp_path, world):
    [found] = survivors(tmp_path, 4, [{"amid": "exchange", "seats": [3], "later": [0]}], **world)
    check(found, [1, 2], "rank [03] has died on ")


def test_others_take_the_seats_of_the_dead(tmp_path):
    deaths = [
        {"amid": "exchange", "seats": [0], "grow": True},
        {"amid": "rest", "seats": [0, 2], "grow": True},
        {"amid": "exchange", "seats": [1]},
    ]
    first, second, third = survivors(tmp_path, 3, deaths)
    check(first, [1, 2], "rank 0 has died on ")
    check(second, [1], "rank [02] has died on ")
    check(third, [0, 2], "rank 1 has died on ")


@pytest.mark.skipif(bool(unavailable()), reason=f"this machine does not allow it: {unavailable()}")
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
