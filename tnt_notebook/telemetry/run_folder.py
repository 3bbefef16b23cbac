"""A run's folder: what is in it, where it lies, and who may read it.

::

    20261121-193000-mlp-on-digits-a1b2/     for its owner only
        run.json          what the run is, who writes, and how it ended
        frames-0.jsonl    a frame a line, 4 MB; the next parts follow, and of a long run those after
        frames-5.jsonl    the first are dropped
        step.json         the latest step trace; of the earlier ones, frames have some
"""

from __future__ import annotations

import os
import re
import secrets
import time
import unicodedata
from pathlib import Path

import platformdirs

ABOUT = "run.json"
STEP = "step.json"
_PART = re.compile(r"frames-(\d{1,9})\.jsonl")


def base() -> Path:
    """Where the folders of runs lie: ``TNT_RUNS_DIR``, or below the user's folder for data."""
    chosen = os.environ.get("TNT_RUNS_DIR")
    return Path(chosen) if chosen else platformdirs.user_data_path("tnt_notebook") / "runs"


def new_name(title: str, began: float) -> str:
    """Of a run that begins at a Unix time: ``20261121-193000-mlp-on-digits-a1b2``."""
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(began))
    return f"{when}-{slug(title)}-{secrets.token_hex(2)}"


def slug(title: str) -> str:
    """A title as a part of a file's name: ``mlp-on-digits``."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].rstrip("-") or "run"


def parts(folder: Path) -> dict[int, Path]:
    """The files of frames by their number, in order."""
    found = {
        int(match[1]): folder / name
        for name in os.listdir(folder)
        if (match := _PART.fullmatch(name))
    }
    return dict(sorted(found.items()))


def part(folder: Path, number: int) -> Path:
    """A file of frames."""
    return folder / f"frames-{number}.jsonl"


def is_of_a_run(name: str) -> bool:
    """Whether a file of this name belongs to a run's folder."""
    return name.removesuffix(".new") in (ABOUT, STEP) or _PART.fullmatch(name) is not None
