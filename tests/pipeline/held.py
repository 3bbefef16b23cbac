"""What the activations of a rank's stages take, as its schedule goes along."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tnt_notebook.parallel.pipeline.parts import Part
from tnt_notebook.parallel.pipeline.stage import StageFunctions
from tnt_notebook.plan.schedule import Action


def peak_bytes(actions: Sequence[Action], stages: Mapping[int, StageFunctions], rows: int) -> int:
    """The most bytes that are held between two actions of a rank, for micro-batches of ``rows``.

    What comes and goes within an action is not counted, nor are the model's inputs and the labels:
    those of a micro-batch are a part of the batch, which is there anyway.
    """
    now = peak = 0
    for action in actions:
        stage = stages[action.stage]
        saved, between = _held(stage, rows, "BIW"), _held(stage, rows, "W")
        now += {"F": saved, "B": -saved, "I": between - saved, "W": -between}[action.kind]
        peak = max(peak, now)
    return peak


def _held(stage: StageFunctions, rows: int, kinds: str) -> int:
    """What is made before the parts of some kinds, for them."""
    parts = [stage.parts[kind] for kind in kinds if kind in stage.parts]
    there = {*stage.labels, *(stage.taken[value] for value in stage.model.stage.inputs)}
    there |= {name for part in parts for name in part.gives}
    taken: dict[str, int] = {}
    for part in parts:
        taken |= _sizes(part, rows)
    return sum(
        size for name, size in taken.items() if name not in there and not name.startswith("dy")
    )


def _sizes(part: Part, rows: int) -> dict[str, int]:
    """Bytes of what a function takes, by name."""
    return {
        name: math.prod(rows if n is None else n for n in tensor.shape) * tensor.dtype.size
        for name, tensor in zip(part.takes, part.function.inputs, strict=False)  # then captures
    }
