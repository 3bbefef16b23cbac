"""What a model has that ranks share: variables, optimizers, and what tells it from others."""

from __future__ import annotations

from typing import Any

import keras

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import layers_within
from tnt_notebook.parallel.consistency import agreement


def state_of(model: keras.Model) -> list[keras.Variable]:
    """Everything that must be the same on all ranks: weights, seeds, state of optimizers."""
    unique: dict[int, keras.Variable] = {id(v): v for v in model.variables}
    for optimizer in optimizers_of(model):
        unique.update({id(v): v for v in optimizer.variables})
    for metric in model.metrics_variables:
        unique.pop(id(metric), None)
    return list(unique.values())


def facts(model: keras.Model) -> dict[str, Any]:
    """What tells that two ranks train the same model in the same way."""
    return {
        "model": type(model).__name__,
        "layers": [type(layer).__name__ for layer in layers_within(model)],
        "variables": agreement.layout(model.variables),
        "optimizers": [type(optimizer).__name__ for optimizer in optimizers_of(model)],
        "trainable variables": len(model.trainable_variables),
    }


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """The optimizers that a model holds: compiled, or as attributes (GANs have two)."""
    compiled = getattr(model, "optimizer", None)
    found = [compiled] if isinstance(compiled, keras.optimizers.Optimizer) else []
    for value in vars(model).values():
        if isinstance(value, keras.optimizers.Optimizer) and all(
            value is not other for other in found
        ):
            found.append(value)
    return found


def refuse_scales(model: keras.Model) -> None:
    """Raises ModelError where training overwrites variables with what comes as their gradients."""
    scales = [v.path for v in model.trainable_variables if v.overwrite_with_gradient]
    if scales:
        raise ModelError(
            f"{scales[0]} belongs to a layer that is quantized to float8, whose scales training "
            "sets by the largest number in a whole batch and in its gradients; ranks see a part "
            "of a batch each. Train it without quantize('float8'), for instance with the dtype "
            "policy mixed_bfloat16, or on one process."
        )


def refuse_stateful(model: keras.Model) -> None:
    """Raises ModelError where a layer needs the samples of a batch in their places."""
    stateful = [layer.name for layer in layers_within(model) if getattr(layer, "stateful", False)]
    if stateful:
        raise ModelError(
            f"{', '.join(stateful)}: a stateful layer goes on with the states that the samples in "
            "the same places of the batch before have left, and ranks, which have parts of a "
            "batch, cannot. Make it with stateful=False, or train on one process."
        )
