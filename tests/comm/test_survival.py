"""Ranks that die under ULFM: the others are told who, and go on without them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.comm import job
from tnt_notebook.comm.survival import MPIEXEC_ARGUMENTS

PROGRAM = "from tests.comm import survivors\nsurvivors.main()\n"

#: Seconds until each survivor has been told, wherever it was.
TOLD_S = 2.0


def survivors(
    folder: Path, n: int, deaths: Sequence[dict[str, Any]], **world: Any
) -> list[list[dict[str, Any]]]:
    """What the ranks found that outlived each death, when the job has ended well."""
    started = job.start(
        folder, n, PROGRAM, json.dumps(world), json.dumps(deaths), options=MPIEXEC_ARGUMENTS
    )
    output = job.output_of(started, 90)
    assert started.returncode == 0, output
    assert "Traceback" not in output, output
    found = [json.loads(line) for line in re.findall(r"FOUND (.*)", output)]
    left = [path for path in (folder / "tmp").rglob("*") if not path.is_dir()]
    left += [process for process in psutil.process_iter() if _is_of(process, folder)]
    assert not left
    by_size: dict[int, list[dict[str, Any]]] = {}
    for one in found:
        by_size.setdefault(len(one["members"]), []).append(one)
    return [by_size[size] for size in sorted(by_size, reverse=True)]


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


WORLDS = [{}, {"transport": "mpi"}, {"nodes": (0, 0, 1, 1)}]


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_ranks_die_one_after_another_until_one_is_left(tmp_path, world):
    deaths = [
        {"in": "exchange", "seats": [0]},
        {"in": "rest", "seats": [2]},
        {"in": "exchange", "seats": [1]},
    ]
    first, second, third = survivors(tmp_path, 4, deaths, **world)
    check(first, [1, 2, 3], "rank 0 has died on ")
    check(second, [1, 3], r"rank 1 has died on .* \(seat 2\)")
    check(third, [3], r"rank 0 has died on .* \(seat 1\)")
    assert third[0]["lost"] == [0, 1, 2]


def test_two_ranks_die_at_once_amid_the_steps_of_a_graph(tmp_path):
    [found] = survivors(tmp_path, 4, [{"in": "train", "seats": [0, 2]}], nodes=(0, 0, 1, 1))
    check(found, [1, 3], r"rank [02] has died on ")


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_a_rank_dies_while_the_others_recover(tmp_path, world):
    [found] = survivors(tmp_path, 4, [{"in": "exchange", "seats": [3], "later": [0]}], **world)
    check(found, [1, 2], "rank [03] has died on ")
