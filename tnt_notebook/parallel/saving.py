"""Saving a model of which each rank has a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from tnt_notebook.parallel import agreement
from tnt_notebook.parallel.session import Session


def save(
    session: Session, model: keras.Model, keras_save: Callable[..., Any], **arguments: Any
) -> None:
    """``keras.Model.save``. A model in parts is gathered on rank 0, which writes; else every rank
    does what it does on one process."""
    functions = session.functions.get(id(model))
    holding = functions.holding if functions else None
    if holding is None or not holding.stay_apart:
        keras_save(model, **arguments)
        return
    holding.gather([0])
    if session.over.rank == 0:
        keras_save(model, **arguments)
    holding.part()
    agreement.agree(session.over, {"call": "save"})  # it is written when this returns


save_weights = save
