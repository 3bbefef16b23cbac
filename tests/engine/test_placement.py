"""Cores and GPUs of ranks, for any number of either."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnt_notebook.engine.placement import (
    by_neighbourhood,
    cores_of,
    gpu_count,
    gpu_of,
    thread_environment,
)

sizes = st.integers(1, 64)


@given(cores=sizes, ranks=sizes)
def test_cores_are_shared_evenly_and_none_is_left_over(cores: int, ranks: int) -> None:
    blocks = [cores_of(i, ranks, range(cores)) for i in range(ranks)]
    assert {core for block in blocks for core in block} == set(range(cores))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    if ranks <= cores:
        assert sum(map(len, blocks)) == cores


def test_more_ranks_than_cores_share_round_robin() -> None:
    assert [cores_of(i, 5, [4, 6]) for i in range(5)] == [(4,), (6,), (4,), (6,), (4,)]


def test_blocks_are_contiguous_in_the_given_order() -> None:
    assert [cores_of(i, 3, range(8)) for i in range(3)] == [(0, 1), (2, 3, 4), (5, 6, 7)]


@given(cores=sizes, ranks=sizes, data=st.data())
def test_a_rank_gets_the_cores_it_asks_for(cores: int, ranks: int, data: st.DataObject) -> None:
    per_rank = data.draw(st.integers(1, cores))
    for i in range(ranks):
        block = cores_of(i, ranks, range(cores), per_rank)
        assert len(block) == len(set(block)) == per_rank


@pytest.mark.parametrize(
    ("local_rank", "gpus", "visible", "expected"),
    [
        (3, None, None, None),
        (3, None, "0,1", None),
        (0, 0, "0,1", "-1"),
        (5, 4, None, "1"),
        (1, 2, "4,7", "7"),
        (2, 2, "GPU-a, GPU-b", "GPU-a"),
    ],
)
def test_a_rank_sees_its_share_of_the_gpus(
    local_rank: int, gpus: int | None, visible: str | None, expected: str | None
) -> None:
    assert gpu_of(local_rank, gpus, visible) == expected


def test_gpus_of_a_host_are_counted_by_their_devices_or_by_the_driver(tmp_path: Path) -> None:
    assert gpu_count(tmp_path) == 0
    for gpu in ("0000:04:00.0", "0000:05:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / gpu).mkdir(parents=True)
    assert gpu_count(tmp_path) == 2
    (tmp_path / "dev").mkdir()
    for device in ("nvidia0", "nvidiactl", "nvidia-uvm"):  # a container that was given one
        (tmp_path / "dev" / device).touch()
    assert gpu_count(tmp_path) == 1
    (tmp_path / "dev/dxg").touch()
    assert gpu_count(tmp_path) is None


def test_thread_pools_fit_the_cores() -> None:
    assert thread_environment(4) == {
        "OMP_NUM_THREADS": "4",
        "TF_NUM_INTRAOP_THREADS": "4",
        "TF_NUM_INTEROP_THREADS": "4",
    }
    assert thread_environment(1)["TF_NUM_INTEROP_THREADS"] == "2"


def test_hyper_threads_of_a_core_stand_side_by_side(tmp_path: Path) -> None:
    for cpu, (package, core) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 0)]):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
    assert by_neighbourhood(range(6), tmp_path) == [0, 4, 2, 1, 5, 3]


def test_a_hidden_topology_leaves_the_order_of_numbers(tmp_path: Path) -> None:
    assert by_neighbourhood([3, 1, 2], tmp_path) == [1, 2, 3]
