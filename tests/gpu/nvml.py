"""What the driver says of a GPU, whoever uses it."""

import pynvml


class Device:
    """The first GPU of a ``CUDA_VISIBLE_DEVICES``: its number or UUID.

    Attributes:
        memory: bytes that it has.
    """

    def __init__(self, visible: str) -> None:
        pynvml.nvmlInit()
        if visible.isdecimal():
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible))
        else:
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(visible)
        self.memory = int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).total)

    def used(self) -> int:
        """Bytes of its memory that are taken now, by all processes."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def joules(self) -> float:
        """What it has used since the driver was loaded."""
        return 1e-3 * float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
