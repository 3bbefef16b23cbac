"""The input of a training run, shared between the ranks: each global batch is cut into slices."""

from __future__ import annotations

from tnt_notebook.parallel.data.adapt import Sharded, sharded, unpack
from tnt_notebook.parallel.data.blocks import Block, Blocks, InBlocks
from tnt_notebook.parallel.data.py_dataset_rows import HasRows
from tnt_notebook.parallel.data.reading import Reading
from tnt_notebook.parallel.data.shard import (
    Replica,
    Share,
    Zipped,
    cut,
    rows,
    samples_of,
    share_of,
    unzipped,
)
from tnt_notebook.parallel.data.sharded_pipeline import own_part

__all__ = [
    "Block",
    "Blocks",
    "HasRows",
    "InBlocks",
    "Reading",
    "Replica",
    "Sharded",
    "Share",
    "Zipped",
    "cut",
    "own_part",
    "rows",
    "samples_of",
    "sharded",
    "share_of",
    "unpack",
    "unzipped",
]
