"""What the driver says of a GPU, whoever uses it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pynvml


@dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes:
        name: of its kind.
        memory: bytes that it has.
    """

    handle: Any
    name: str
    memory: int

    def used(self) -> int:
        """Bytes of its memory that are taken now, by all processes."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)

    def joules(self) -> float:
        """What it has used since the driver was loaded."""
        return 1e-3 * float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))


@contextlib.contextmanager
def device(visible: str) -> Iterator[Device]:
    """The first GPU of a ``CUDA_VISIBLE_DEVICES``: its number or UUID."""
    pynvml.nvmlInit()
    try:
        by_number = visible.isdecimal()
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(visible))
            if by_number
            else pynvml.nvmlDeviceGetHandleByUUID(visible)
        )
        name = pynvml.nvmlDeviceGetName(handle)
        yield Device(
            handle,
            name.decode() if isinstance(name, bytes) else name,
            int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        )
    finally:
        pynvml.nvmlShutdown()
