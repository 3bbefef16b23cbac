"""The graph of a Keras model as a list of layer calls, nested models opened up.

    values   0: input   1: conv1   2: bn1   ...             every tensor between calls has a number
    calls    conv1(0) -> 1,   bn1(1) -> 2,   add(2, 0) -> 3

The order is one in which the calls can be made, the same on all ranks, so any cut of the list into
consecutive runs makes stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import (
    Functional,
    functional_of,
    input_structure,
    mask_of,
    nodes_of,
    output_structure,
    run_with,
    set_mask,
    standardized_inputs,
)
from tnt_notebook.parallel.layer_graph.packing import packed_spec
from tnt_notebook.parallel.layer_graph.parts import is_differentiable
from tnt_notebook.plan.partition import Wiring

#: The size of an axis: :data:`SAMPLES`, as many as there are samples; None, not known before.
Dimension = int | None
SAMPLES = -1


@dataclass(frozen=True)
class Call:
    """One layer, or one operation of ``keras.ops``, applied to values.

    Attributes:
        takes, gives: numbers of values, masks after the others.
        masks: of values that it takes, what says which of their steps count.
        masked: values that it gives with a mask of its own making.
    """

    operation: Any
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    _arguments: Any
    _numbers: Mapping[int, int]
    masks: Mapping[int, int] = field(default_factory=dict)
    masked: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return str(self.operation.name)

    @property
    def constants(self) -> str:
        """Its other arguments, and at which places values stand among them."""
        arguments = (self._arguments.args, self._arguments.kwargs)
        place = {id(x): f"value {i}" for i, x in enumerate(self._arguments.keras_tensors)}
        return str(keras.tree.map_structure(lambda a: place.get(id(a), a), arguments))

    @property
    def others(self) -> list[Any]:
        """Its other arguments, those in structures one by one."""
        arguments = (self._arguments.args, self._arguments.kwargs)
        values = {id(x) for x in self._arguments.keras_tensors}
        return [a for a in keras.tree.flatten(arguments) if id(a) not in values]

    def run(self, values: dict[int, Any], training: bool) -> None:
        """Makes the call on tensors, and adds what it gives to them."""
        for value, mask in self.masks.items():
            set_mask(values[value], values[mask])
        known = {key: values[n] for key, n in self._numbers.items() if n in values}
        outputs = run_with(self.operation, self._arguments, known, training)
        count = len(self.gives) - len(self.masked)
        values.update(zip(self.gives[:count], outputs, strict=True))
        masks = [mask_of(values[value]) for value in self.masked]
        values.update(zip(self.gives[count:], masks, strict=True))


@dataclass
class Graph:
    """A model's calls, and its inputs and outputs among their values.

    Attributes:
        specs, shapes: of each value, as a keras.KerasTensor: shape, dtype, name; and the shape.
        masked: values that carry a mask, with the value that is their mask.
        dense, sparse: those that are plain tensors; that are tf.SparseTensor.
        output_structure: what the model returns, with numbers in the place of tensors.
        functional: whose graph it is; None: of a model that has none.
    """

    calls: list[Call] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    specs: list[keras.KerasTensor] = field(default_factory=list)
    shapes: list[tuple[Dimension, ...]] = field(default_factory=list)
    masked: Mapping[int, int] = field(default_factory=dict)
    dense: frozenset[int] = frozenset()
    sparse: frozenset[int] = frozenset()
    output_structure: Any = None
    functional: Functional | None = None

    def spec(self, value: int) -> tf.TensorSpec:
        """Shape and dtype of a value, for any number of samples."""
        shape = (None if n == SAMPLES else n for n in self.shapes[value])
        return tf.TensorSpec(shape, self.specs[value].dtype)

    def packed_spec(self, value: int) -> tf.TensorSpec:
        """The same of the tensor as which functions take it: see :mod:`.packing`."""
        return packed_spec(self.spec(value), value in self.sparse)

    def shape(self, value: int, samples: Any) -> list[Any] | None:
        """The shape of a value, of so many samples; None if that does not tell."""
        shape = [samples if n == SAMPLES else n for n in self.shapes[value]]
        return None if any(n is None for n in shape) else shape

    def new_value(self, spec: keras.KerasTensor) -> int:
        self.specs.append(spec)
        return len(self.specs) - 1


def graph_of(model: keras.Model) -> Graph:
    """The graph of a functional or Sequential model; :func:`.survey.surveyed` tells more of it.
    Raises ModelError where there is none, and so no layers between which it could be cut."""
    functional = functional_of(model)
    if functional is None:
        raise ModelError(
            f"{type(model).__name__} {model.name!r} cannot be cut into pipeline stages, nor "
            "its layers divided: its call is Python code, and only a model made of a graph of "
            "layers can be cut. Write it with "
            "the functional interface, keras.Model(inputs, outputs), or as a keras.Sequential "
            "that begins with a keras.Input. Layers of your own inside are no obstacle."
        )
    graph = Graph(functional=functional)
    numbers = {id(x): graph.new_value(x) for x in functional.inputs}
    graph.inputs = tuple(numbers.values())
    _walk(graph, functional, numbers)
    graph.outputs = tuple(numbers[id(y)] for y in functional.outputs)
    graph.output_structure = keras.tree.map_structure(
        lambda y: numbers[id(y)], output_structure(functional)
    )
    return graph


def standardized(graph: Graph, x: Any) -> dict[int, Any]:
    """What the model is given, by value of the graph. Raises ModelError if it is ragged."""
    assert graph.functional is not None
    given = dict(zip(graph.inputs, standardized_inputs(graph.functional, x), strict=True))
    for value, tensor in given.items():
        if isinstance(tensor, tf.RaggedTensor):
            raise ModelError(
                f"The input {graph.specs[value].name!r} is a tf.RaggedTensor, which a pipeline "
                "does not pass on to layers: give the model to_tensor() of it, or train without a "
                "pipeline."
            )
        if value in graph.sparse and isinstance(tensor, tf.Tensor):
            given[value] = tf.sparse.from_dense(tensor)
    return given


def _walk(graph: Graph, model: Functional, numbers: dict[int, int]) -> None:
    """Adds a model's calls; ``numbers`` knows its inputs by id, and all its tensors afterwards."""
    for node in nodes_of(model):
        takes = [numbers[id(x)] for x in node.arguments.keras_tensors]
        nested = functional_of(node.operation)
        if nested is not None:
            inner = dict(zip(map(id, nested.inputs), _given(node, nested, numbers), strict=True))
            _walk(graph, nested, inner)
            gives = [inner[id(y)] for y in nested.outputs]
        else:
            gives = [graph.new_value(y) for y in node.outputs]
            own = {id(x): numbers[id(x)] for x in node.arguments.keras_tensors}
            graph.calls.append(
                Call(node.operation, tuple(takes), tuple(gives), node.arguments, own)
            )
        numbers.update(zip(map(id, node.outputs), gives, strict=True))


def _given(node: Any, nested: Functional, numbers: dict[int, int]) -> list[int]:
    """The values that a nested model is called on, in the order of its inputs."""
    given = node.arguments.args[0] if node.arguments.args else node.arguments.kwargs["inputs"]
    if isinstance(given, dict) and not isinstance(input_structure(nested), dict):
        given = [given[x.name] for x in nested.inputs]
    return [numbers[id(x)] for x in keras.tree.flatten(given)]


def layers_of(calls: Sequence[Call]) -> list[keras.Layer]:
    """The layers that are called, each once."""
    unique = {id(c.operation): c.operation for c in calls if isinstance(c.operation, keras.Layer)}
    return list(unique.values())


def trained_values(graph: Graph) -> frozenset[int]:
    """Values that change with a weight that is trained: gradients flow through them. A value that
    is neither a real nor a complex number has none, and ends their way."""
    found: set[int] = set()
    for call in graph.calls:
        if (layers_of([call]) and call.operation.trainable_variables) or found & set(call.takes):
            found.update(n for n in call.gives if is_differentiable(graph.specs[n].dtype))
    return frozenset(found)


def wiring_of(graph: Graph) -> Wiring:
    """The graph as numbers."""
    return Wiring(
        tuple((call.takes, call.gives) for call in graph.calls), graph.inputs, graph.outputs
    )
