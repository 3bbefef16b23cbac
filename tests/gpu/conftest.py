"""Ranks that share a GPU. Without one, nothing here runs, and that is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.gpu.required import problem
from tests.support.rank_pool import RankPool

if TYPE_CHECKING:
    from tests.gpu.nvml import Device

#: The one that all ranks of `ranks` share.
GPU = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": GPU,
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    # So that results may be compared: products in the precision that was asked for, and the same
    # sums in every run.
    "NVIDIA_TF32_OVERRIDE": "0",
    "TF_DETERMINISTIC_OPS": "1",
    # What TensorFlow says of a GPU that it cannot use is in the output of a rank that failed.
    "TF_CPP_MIN_LOG_LEVEL": "1",
}


def pytest_configure() -> None:
    if why := problem():
        raise pytest.UsageError(why)


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """As elsewhere, but on a GPU."""
    pool = RankPool(tmp_path_factory.mktemp("ranks"), ENVIRONMENT)
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def gpu() -> Device:
    """The GPU that they share, as the driver sees it."""
    from tests.gpu.nvml import Device

    return Device(GPU)
