"""What must hold before a model trains on several ranks: compiled, built, and the same on all."""

from __future__ import annotations

from typing import Any

import keras
from keras.src import backend as keras_backend
from keras.src.optimizers.base_optimizer import BaseOptimizer

from tnt_notebook.errors import ModelError
from tnt_notebook.parallel import agreement, presence
from tnt_notebook.parallel.data.adapt import unpack
from tnt_notebook.parallel.session import Session


def prepare(
    session: Session, model: keras.Model, call: str, element: Any, **arguments: Any
) -> None:
    """Builds the model, checks that all ranks want the same, and gives them rank 0's state.

    Without a pipeline every rank has the whole model then; in one, it has what it had, and who has
    which stage is decided later.

    Args:
        call: the method that is about to run.
        element: the structure of a batch, in tf.TensorSpec.
        arguments: of the call; must be the same on all ranks.

    Raises:
        ModelError: the model cannot be trained yet; the message says what is missing.
        DisagreementError: the ranks have different models or arguments.
    """
    over, with_loss = session.over, not call.startswith("predict")
    if with_loss:
        check_compiled(model, call)
    if session.pipeline and with_loss and all(layer.built for layer in model._flatten_layers()):
        with presence.lazy():  # each rank creates what belongs to its own weights
            _build_optimizers(model)
    build(model, element, with_loss)
    agreement.agree(over, {"call": call, **arguments, **facts(model)})
    state = state_of(model)
    if session.pipeline is None:
        presence.distribute(over, state, [range(over.size)] * len(state))
    agreement.share_state(over, state)


def check_compiled(model: keras.Model, call: str) -> None:
    if not model.compiled:
        raise ModelError(
            f"The model is not compiled, so {call} has no loss and no optimizer: call "
            "model.compile(optimizer, loss) before it."
        )


def build(model: keras.Model, element: Any, with_loss: bool = True) -> None:
    """Creates all variables now, so that they can be made the same on all ranks.

    Args:
        element: the structure of a batch, in tf.TensorSpec.
        with_loss: whether losses, metrics and the optimizer will be used as well.
    """
    if _has_own_call(model):
        try:
            if with_loss:
                model._symbolic_build(data_batch=element)
            elif not all(layer.built for layer in model._flatten_layers()):
                keras_backend.compute_output_spec(model, _symbolic(unpack(element)[0]))
        except Exception as error:
            raise ModelError(
                "The model is not built, and could not be built from the shapes of the input "
                f"({type(error).__name__}: {error}). Call it once on a batch before training, or "
                "give it a keras.Input."
            ) from error
    unbuilt = [layer.name for layer in model._flatten_layers(include_self=False) if not layer.built]
    if unbuilt:
        raise ModelError(
            f"Layers {', '.join(unbuilt)} are not built, so their weights cannot be shared between "
            "the ranks. Call the model, or the part of it that is trained, once on a batch before."
        )
    _build_optimizers(model)


def _build_optimizers(model: keras.Model) -> None:
    for optimizer in _optimizers(model):
        if not optimizer.built and optimizer is model.optimizer:
            optimizer.build(model.trainable_variables)


def state_of(model: keras.Model) -> list[keras.Variable]:
    """Everything that must be the same on all ranks: weights, seeds, state of optimizers."""
    unique: dict[int, keras.Variable] = {id(v): v for v in model.variables}
    for optimizer in _optimizers(model):
        unique.update({id(v): v for v in optimizer.variables})
    for metric in model.metrics_variables:
        unique.pop(id(metric), None)
    return list(unique.values())


def facts(model: keras.Model) -> dict[str, Any]:
    """What tells that two ranks train the same model in the same way."""
    return {
        "model": type(model).__name__,
        "layers": [type(layer).__name__ for layer in model._flatten_layers()],
        "variables": agreement.layout(model.variables),
        "optimizers": [type(optimizer).__name__ for optimizer in _optimizers(model)],
        "trainable variables": len(model.trainable_variables),
    }


def _has_own_call(model: keras.Model) -> bool:
    """A model that only has a train_step (a GAN, say) cannot be called, and so not be built."""
    return type(model).call is not keras.Layer.call and type(model).call is not keras.Model.call


def _symbolic(element: Any) -> Any:
    return keras.tree.map_structure(
        lambda spec: spec and keras.KerasTensor(spec.shape, spec.dtype.name), element
    )


def _optimizers(model: keras.Model) -> list[BaseOptimizer]:
    """The optimizers that a model holds: compiled, or as attributes (GANs have two)."""
    found = [model.optimizer] if isinstance(model.optimizer, BaseOptimizer) else []
    for value in vars(model).values():
        if isinstance(value, BaseOptimizer) and all(value is not other for other in found):
            found.append(value)
    return found
