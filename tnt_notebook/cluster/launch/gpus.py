"""How many GPUs this machine has for its ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tnt_notebook.errors import ClusterError

_DRIVER = Path("/proc/driver/nvidia/gpus")


def gpu_count() -> int:
    """GPUs that may be used here: those in ``CUDA_VISIBLE_DEVICES`` if set, else all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() and name.strip() != "-1"])
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is not None:
        try:
            listing = subprocess.run(
                [nvidia_smi, "-L"], capture_output=True, text=True, timeout=20, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError):
            listing = ""  # no driver behind the tool: what the kernel knows decides
        found = sum(line.startswith("GPU ") for line in listing.splitlines())
        if found:
            return found
    return len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0


def check_gpus(wanted: int | None) -> None:
    """Refuses more GPUs per node than this one has.

    Raises:
        ClusterError: ``wanted`` is more than there are.
    """
    if not wanted:
        return
    found = gpu_count()
    if wanted > found:
        has = {0: "no GPU", 1: "1 GPU"}.get(found, f"{found} GPUs")
        raise ClusterError(
            f"--gpus {wanted}: this machine has {has} to offer. "
            + (f"Use --gpus {found} or less." if found else "Start without --gpus.")
        )
