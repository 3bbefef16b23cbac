"""What a rank needs and uses: memory, and energy where the machine counts it.

Energy of processors is counted by RAPL, for all of a host and whatever runs there; Linux lets only
root read it unless told otherwise. That of a GPU is counted by NVML, if nvidia-ml-py is installed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import tensorflow as tf

_POWERCAP = Path("/sys/class/powercap")


def memory() -> int:
    """Bytes that this process has in memory, and on its GPU."""
    used = int(psutil.Process().memory_info().rss)
    if tf.config.list_logical_devices("GPU"):
        used += int(tf.config.experimental.get_memory_info("GPU:0")["current"])
    return used


class Rapl:
    """The energy of this host's processors since this was made, by the counters of Linux."""

    def __init__(self, folder: Path = _POWERCAP) -> None:
        self._zones: list[tuple[Path, int]] = []
        self._last: list[int] = []
        self._used = 0
        # intel-rapl:0 is a processor (on AMD too), intel-rapl:0:0 a part of it.
        for zone in sorted(folder.glob("intel-rapl:*")):
            if zone.name.count(":") == 1:
                with contextlib.suppress(OSError, ValueError):
                    self._last.append(_number(zone / "energy_uj"))
                    self._zones.append((zone, _number(zone / "max_energy_range_uj")))

    def joules(self) -> float | None:
        """None where there is no counter, or none that may be read. Ask at least every minute:
        counters begin anew now and then."""
        try:
            for i, (zone, around) in enumerate(self._zones):
                now = _number(zone / "energy_uj")
                self._used += (now - self._last[i]) % (around + 1)
                self._last[i] = now
        except OSError:  # it may not be read any more
            self._zones = []
        return 1e-6 * self._used if self._zones else None


def uncounted(folder: Path = _POWERCAP) -> str:
    """Why energy is not counted on this rank; empty: its processors or its GPU count it."""
    if Rapl(folder).joules() is not None or gpu().id:
        return ""
    zones = [zone for zone in folder.glob("intel-rapl:*") if zone.name.count(":") == 1]
    if not zones:
        why = f"this machine shows no counters of its processors in {folder}"
    else:
        counter = sorted(zones)[0] / "energy_uj"
        why = f"this user may not read {counter} (root can allow it: chmod a+r)"
    if tf.config.list_physical_devices("GPU"):
        why += ", and its GPU counts none, or nvidia-ml-py is not installed"
    return why


@functools.cache
def gpu() -> Gpu:
    """That of this rank."""
    return Gpu()


class Gpu:
    """This rank's GPU: its energy since this was made, and what it does now; ``id`` is the same for
    ranks that share it, 0 without."""

    def __init__(self) -> None:
        self.id = 0
        self._nvml: Any = None
        if not tf.config.list_physical_devices("GPU"):
            return
        try:
            import pynvml
        except ImportError:
            return
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
            by_number = visible.isdecimal()
            self._device = (
                pynvml.nvmlDeviceGetHandleByIndex(int(visible))
                if by_number
                else pynvml.nvmlDeviceGetHandleByUUID(visible)
            )
            self._begin = pynvml.nvmlDeviceGetTotalEnergyConsumption(self._device)
            self._now = self._begin
            uuid = pynvml.nvmlDeviceGetUUID(self._device)
            self.id = zlib.crc32(uuid if isinstance(uuid, bytes) else uuid.encode())
            self._nvml = pynvml

    def joules(self) -> float:
        """0 where there is no counter."""
        if self._nvml is None:
            return 0.0
        # A counter that fails from now on must not end the training: what it had counted stays.
        with contextlib.suppress(self._nvml.NVMLError):
            self._now = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device)
        return 1e-3 * float(self._now - self._begin)

    def load(self) -> float | None:
        """How much of the latest time it has computed, in percent; None where it does not say."""
        return self._said(lambda nvml, own: nvml.nvmlDeviceGetUtilizationRates(own).gpu)

    def watts(self) -> float | None:
        """What it draws now; None where it does not say."""
        return self._said(lambda nvml, own: 1e-3 * nvml.nvmlDeviceGetPowerUsage(own))

    def memory(self) -> tuple[int, int] | None:
        """Bytes that are taken, by whomever, and all; None where it does not say."""
        said = self._said(lambda nvml, own: nvml.nvmlDeviceGetMemoryInfo(own))
        return said and (int(said.used), int(said.total))

    def _said(self, ask: Callable[[Any, Any], Any]) -> Any:
        if self._nvml is None:
            return None
        with contextlib.suppress(self._nvml.NVMLError):  # some GPUs say less than others
            return ask(self._nvml, self._device)
        return None


def _number(file: Path) -> int:
    return int(file.read_text())
