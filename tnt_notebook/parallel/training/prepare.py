"""What must hold before a model trains on several ranks: compiled, built, and the same on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from tnt_notebook.error_text import brief
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import is_built, layers_within, run_symbolically
from tnt_notebook.keras.lazy_variables import is_lazy, lazy
from tnt_notebook.keras.step_functions import (
    build_by_tracing,
    build_symbolically,
    compiled_as,
    lacks_metrics,
    own_step,
)
from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.consistency.holders import distribute
from tnt_notebook.parallel.consistency.model_state import (
    facts,
    optimizers_of,
    refuse_scales,
    refuse_stateful,
    state_of,
)
from tnt_notebook.parallel.data.adapt import unpack
from tnt_notebook.parallel.training import tracking
from tnt_notebook.parallel.training.session import Session

_PHASES = {"fit": "train", "evaluate": "test", "predict": "predict"}
_PHASES |= {f"{phase}_on_batch": phase for phase in ("train", "test", "predict")}


def prepare(
    session: Session, model: keras.Model, call: str, element: Any, **arguments: Any
) -> None:
    """Builds the model, checks that all ranks want the same, and gives them rank 0's state.

    Without a pipeline every rank has the whole model then; in one, it has what it had, and who has
    which stage is decided later. ``element`` is a batch, in tf.TensorSpec.

    Raises:
        TrackerError: what a tracker needs is not installed.
        ModelError: the model cannot be trained, or not yet; the message says why.
        DisagreementError: the ranks have different models or arguments.
    """
    over, with_loss = session.over, _PHASES[call] != "predict"
    if call == "fit":
        tracking.check(session)
    if over.size > 1:
        refuse_stateful(model)
        if call in ("fit", "train_on_batch"):
            refuse_scales(model)
    if with_loss and not model.compiled:
        raise ModelError(
            f"The model is not compiled, so {call} has no loss and no optimizer: call "
            "model.compile(optimizer, loss) before it."
        )
    apart = session.in_blocks and any(map(is_lazy, model.variables))
    in_parts = session.pipeline is not None or (session.exchange.has_owners and over.size > 1)
    in_parts |= apart
    if in_parts and with_loss and all(map(is_built, layers_within(model))):
        with lazy():  # each rank creates what belongs to its own weights
            _build_optimizers(model)
    made = session.functions.get(id(model))
    build(model, element, call, made is not None and made.compiled is compiled_as(model))
    says = "; ".join(session.division.says) if session.division is not None else "none"
    agreement.agree(over, {"call": call, "distribution": says, **arguments, **facts(model)})
    state = state_of(model)
    if session.pipeline is None:
        # What optimizers keep comes to those that own the weights.
        later = {id(v) for one in optimizers_of(model) for v in one.variables if in_parts}
        # On a mesh what is built lazily is created in blocks.
        everywhere = [v for v in state if id(v) not in later and not (apart and is_lazy(v))]
        distribute(over, everywhere, [range(over.size)] * len(everywhere))
    agreement.share_state(over, state)


def build(model: keras.Model, element: Any, call: str, traced: bool) -> None:
    """Creates all variables now, for batches as ``element`` in tf.TensorSpec, so that they can be
    made the same on all ranks; those of losses, metrics and the optimizer too, unless ``call``
    predicts. How a model is called is known to its step: Keras's calls it on the input, one of the
    model's own is traced, unless its ``train_step`` was ``traced`` since compile()."""
    phase = _PHASES[call]
    with_loss, step = phase != "predict", own_step(model, phase)
    lacks = with_loss and lacks_metrics(model)
    if step is not None and not model.run_eagerly:
        # What such a step does not use never is built.
        if (lacks and not (traced and phase == "train")) or _unbuilt(model):
            build_by_tracing(step, element)
    elif _has_own_call(model) and (lacks or not is_built(model) or _unbuilt(model)):
        try:
            if with_loss:
                build_symbolically(model, element)
            else:
                run_symbolically(model, _symbolic(unpack(element)[0]))
        except Exception as error:
            raise ModelError(
                f"The model cannot be called on input of these shapes ({brief(error)}). If the "
                "shapes are right, call it once on a batch before training, or add a keras.Input."
            ) from error
    if unbuilt := _unbuilt(model):
        raise ModelError(
            f"Layers {', '.join(unbuilt)} are not built, so their weights cannot be shared between "
            "the ranks. Call the model, or the part of it that is trained, once on a batch before."
        )
    _build_optimizers(model)


def build_layers(model: keras.Model, element: Callable[[], Any]) -> None:
    """Creates the variables of a model's layers alone, if it lacks some.

    Args:
        element: gives a batch, in tf.TensorSpec.
    """
    if _has_own_call(model) and not (is_built(model) and not _unbuilt(model)):
        run_symbolically(model, _symbolic(unpack(element())[0]))


def _unbuilt(model: keras.Model) -> list[str]:
    return [layer.name for layer in layers_within(model, itself=False) if not is_built(layer)]


def _build_optimizers(model: keras.Model) -> None:
    for optimizer in optimizers_of(model):
        if not optimizer.built and optimizer is model.optimizer:
            optimizer.build(model.trainable_variables)


def _has_own_call(model: keras.Model) -> bool:
    """A model that only has a train_step (a GAN, say) cannot be called, and so not be built."""
    return type(model).call is not keras.Layer.call and type(model).call is not keras.Model.call


def _symbolic(element: Any) -> Any:
    return keras.tree.map_structure(
        lambda spec: spec and keras.KerasTensor(spec.shape, spec.dtype.name), element
    )
