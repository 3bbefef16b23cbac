"""Saving a model: one of which each rank has a part, and one that all ranks have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.training.session import Session


def save(
    session: Session, model: keras.Model, keras_save: Callable[..., Any], **arguments: Any
) -> None:
    """``keras.Model.save``. A model in parts is gathered on rank 0, which writes. Else every rank
    does what it does on one process, and may be the only one that does; of a file that several
    write at once, whoever reads sees one whole."""
    functions = session.functions.get(id(model))
    weights = functions.weights if functions else None
    if weights is None or not weights.stay_apart:
        _save_whole(session, model, keras_save, **arguments)
        return
    weights.gather([0])
    if session.over.rank == 0:
        keras_save(model, **arguments)
    weights.part()
    weights.gather()  # to nobody: it stays apart
    agreement.agree(session.over, {"call": "save"})  # it is written when this returns


def _save_whole(
    session: Session, model: keras.Model, keras_save: Callable[..., Any], **arguments: Any
) -> None:
    path = Path(str(arguments["filepath"]))
    asks = path.exists() and not arguments["overwrite"]
    in_parts = arguments.get("zipped") is False or arguments.get("max_shard_size")
    is_one_file = path.suffix in (".keras", ".h5") and not in_parts
    if session.over.size == 1 or asks or not is_one_file or not path.parent.is_dir():
        keras_save(model, **arguments)
        return
    beside = path.with_name(f".rank-{session.over.rank}-{os.getpid()}-{path.name}")
    try:
        keras_save(model, **{**arguments, "filepath": str(beside)})
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


save_weights = save
