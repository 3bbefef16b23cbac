"""The graph of layers inside a functional or Sequential model. The same from Keras 3.10 to 3.15."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
from keras.src import backend
from keras.src.backend.common import global_state
from keras.src.models.functional import Functional as Functional
from keras.src.models.functional import operation_fn

from tnt_notebook.keras.replaced import replaced


def functional_of(model: Any) -> Functional | None:
    """The graph inside a model, if it is nothing but that."""
    if isinstance(model, keras.Sequential):
        return model._functional if model.built else None
    own_call = type(model).call is not Functional.call
    return model if isinstance(model, Functional) and not own_call else None


def nodes_of(functional: Functional) -> Iterator[Any]:
    """Its calls of layers and operations, in an order in which they can be made. Each has
    ``operation``, ``arguments`` (with ``args``, ``kwargs``, and ``keras_tensors`` among them) and
    ``outputs``."""
    for depth in sorted(functional._nodes_by_depth, reverse=True):
        for node in functional._nodes_by_depth[depth]:
            if not node.is_input and node.operation:
                yield node


def input_structure(functional: Functional) -> Any:
    """What it takes, with a keras.KerasTensor in each place."""
    return functional._inputs_struct


def output_structure(functional: Functional) -> Any:
    """What it returns, with a keras.KerasTensor in each place: of a list of one that one."""
    given = functional._outputs_struct
    return given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given


def standardized_inputs(functional: Functional, x: Any) -> list[Any]:
    """What it is given, as tensors of the right rank and dtype, in the order of its inputs."""
    return list(functional._standardize_inputs(x))


def places_of_inputs(functional: Functional, x: Any) -> list[int] | None:
    """Which of the tensors of ``x``, its structure flattened, is which input of the model, in their
    order; None if it cannot be said."""
    wanted, count = functional._inputs_struct, len(functional.inputs)
    if isinstance(x, dict) and not isinstance(wanted, dict):
        keys, names = sorted(x), [each.name for each in functional.inputs]
        flat = len(keys) == len(keras.tree.flatten(x))
        return [keys.index(n) for n in names] if flat and set(names) <= set(keys) else None
    same = keras.tree.lists_to_tuples
    try:
        keras.tree.assert_same_structure(same(x), same(wanted))
    except (ValueError, TypeError):
        single = count == 1 and len(keras.tree.flatten(x)) == 1
        return [0] if single else None
    return list(range(count))


@contextlib.contextmanager
def takes_any_shape(model: keras.Model) -> Iterator[None]:
    """Inside, a model does not look whether what it is given has the shapes of its inputs."""

    def check(own: Any, called: Any, *inputs: Any) -> None:
        if called is not model:
            own(called, *inputs)

    with replaced(type(model), "_assert_input_compatibility", check):
        yield


def run_with(
    operation: Any, arguments: Any, values: Mapping[int, Any], training: bool
) -> list[Any]:
    """Calls an operation, with the arguments of a node, on tensors: ``values``, by id of the
    keras.KerasTensor that each stands for."""
    args, kwargs = arguments.fill_in(values)
    return keras.tree.flatten(operation_fn(operation, training=training)(*args, **kwargs))


def run_symbolically(function: Callable[..., Any], *specs: keras.KerasTensor) -> Any:
    """Runs a function on tensors without numbers, and gives the specs of what it returns."""
    return backend.compute_output_spec(function, *specs)


def mask_of(tensor: Any) -> Any | None:
    """The mask that hangs on a tensor: of an Embedding or Masking layer."""
    return backend.get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Any) -> None:
    backend.set_keras_mask(tensor, mask)


def layers_within(layer: keras.Layer, itself: bool = True) -> list[keras.Layer]:
    """All layers of a layer or model, at any depth."""
    return list(layer._flatten_layers(include_self=itself))


def is_built(layer: keras.Layer) -> bool:
    """Whether a layer has all its weights. What TextVectorization keeps inside is never marked as
    built; it has none, as whatever leaves ``build`` to Keras."""
    return bool(layer.built) or type(layer).build is keras.Layer.build


def within_call() -> bool:
    """Whether a layer is being called just now."""
    return global_state.get_global_attribute("current_call_ctx") is not None


def times_called(layer: keras.Layer, functional: Functional) -> int:
    """How often a layer is called in a graph. It may be called in others, too: a Sequential model
    to which layers are added one by one makes a new graph of all of them each time."""
    return sum(node.operation is layer for node in nodes_of(functional))
