"""Files for their owner only, which whoever reads sees as they were or as they are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace(path: Path, value: Any) -> None:
    """Writes JSON, for its owner alone; who reads sees the old file or the new."""
    beside = path.with_name(f"{path.name}.new")
    with open(beside, "w", encoding="utf-8", opener=private) as file:
        file.write(json.dumps(value, separators=(",", ":"), default=str))  # .dump is slow
    os.replace(beside, path)


def private(path: str, flags: int) -> int:
    """Opens a file that its owner alone may read; an opener for :func:`open`."""
    return os.open(path, flags, 0o600)
