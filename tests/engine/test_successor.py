"""An engine that dies takes no other along, and another one takes its seat."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from typing import Any

import ipyparallel as ipp
import pytest
from tnt_notebook.cluster.supervisor import processes_of

from tests.support.waiting import eventually
from tnt_notebook.cluster import launch
from tnt_notebook.cluster.engines import Engines
from tnt_notebook.comm.survival import MPIEXEC_ARGUMENTS

CELLS = """
import numpy as np
from tnt_notebook import comm

def sum_without_end():
    while True:
        comm.world().allreduce(np.ones(1000))
"""


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    arguments = launch._mpi_arguments
    monkeypatch.setattr(
        launch, "_mpi_arguments", lambda *asked: [*arguments(*asked), *MPIEXEC_ARGUMENTS]
    )
    engines = Engines(secrets.token_hex(4), 3, None, None, {}, 60, lambda line: None)
    yield engines
    engines.close()
    assert not processes_of(engines.cluster_id)


def call(engines: Engines, ranks: list[int], module: str, function: str) -> list[Any]:
    """What a function of the engine side gives on each rank."""
    path = f"__import__('tnt_notebook.engine.{module}', fromlist=['*']).{function}"
    return engines.client[ranks].apply_async(ipp.Reference(path)).get(timeout=30)


def pids(engines: Engines) -> list[int]:
    return [seat["pid"] for seat in call(engines, [0, 1, 2], "cell", "describe")]


def test_a_successor_takes_the_seat_and_the_others_keep_their_variables(engines: Engines) -> None:
    client = engines.client
    client[:].execute(CELLS + "mine = comm.rank()").get(timeout=30)
    for victim, work in ((0, "sum_without_end()"), (0, "pass"), (2, "sum_without_end()")):
        others = [rank for rank in range(3) if rank != victim]
        victims_pid = pids(engines)[victim]
        cells = client[others].execute(work)
        os.kill(victims_pid, signal.SIGKILL)
        if work != "pass":
            with pytest.raises(ipp.CompositeError, match=rf"because rank {victim} has died on "):
                cells.get(timeout=5)
        eventually(lambda left=others: client.ids == left)

        assert call(engines, others, "cell", "recover") == [others] * 2
        assert call(engines, others, "successor", "fill_seats") == [[0, 1, 2]] * 2
        eventually(lambda: client.ids == [0, 1, 2])
        described = call(engines, [0, 1, 2], "cell", "describe")
        assert [(d["rank"], d["size"]) for d in described] == [(0, 3), (1, 3), (2, 3)]
        assert client[1].pull("mine").get(timeout=5) == 1
        client[victim].execute(CELLS).get(timeout=30)
        total = client[:].execute("total = comm.world().gather_numbers(comm.rank())")
        total.get(timeout=10)
        assert client[:].pull("total").get(timeout=5) == [[0, 1, 2]] * 3
