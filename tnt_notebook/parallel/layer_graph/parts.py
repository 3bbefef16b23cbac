"""Forward and backward of a computation as functions of their own, traced once.

A graph of both is traced, and cut into parts that hand each other exactly what is needed:

    F    x0, x1, ...             -> y0, y1, ..., what is saved   (batch norm and seeds change here)
    B    dy0, ..., saved         -> dx0, ..., dw0, ...
    I    dy0, ..., saved         -> dx0, ..., what W needs of it     or in two halves
    W    saved, dy0, ..., of I   -> dw0, ...

Who runs the parts keeps values by name. What costs next to nothing to have again (weights,
constants) is not saved; with recomputation, nothing is but the inputs and the states of random
numbers, and backward begins with another forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tnt_notebook.keras.tensorflow import share_functions
from tnt_notebook.keras.traced import only_reads
from tnt_notebook.parallel.exchange.sparse_rows import are_distinct

#: Tensors of a traced graph, by name.
Tensors = dict[str, tf.Tensor]


class Part(NamedTuple):
    """One function, called as one node of a graph.

    Attributes:
        takes, gives: names of its arguments and results. There is a ``dy`` for each ``y`` that
            has a gradient, a ``dx`` for each ``x`` that is differentiated, and a ``dw`` for each
            weight that a ``y`` depends on; a sparse one is ``dw0.values`` and ``dw0.indices``,
            or ``dw0.rows`` if none comes twice.
    """

    function: Any  # a tf.types.experimental.ConcreteFunction
    takes: tuple[str, ...]
    gives: tuple[str, ...]


def parts_of(
    forward: Callable[[list[tf.Tensor]], Sequence[tf.Tensor]],
    inputs: Sequence[tf.TensorSpec],
    weights: Sequence[tf.Variable] = (),
    kinds: str = "F",
    recompute: bool = False,
    name: str = "stage",
    differentiated: Sequence[int] | None = None,
) -> dict[str, Part]:
    """Traces a computation, and its gradient if that is wanted; gives the parts by kind.

    Args:
        kinds, recompute, name: as of :meth:`Joint.cut`; the others as of :class:`Joint`.
    """
    joint = Joint(forward, inputs, weights, kinds != "F", differentiated)
    return joint.cut(kinds, recompute, name)


def is_differentiable(dtype: Any) -> bool:
    """Whether values of a dtype have gradients."""
    kind = tf.as_dtype(dtype)
    return bool(kind.is_floating or kind.is_complex)


class Joint:
    """The graph of a computation and its gradient.

    Args:
        forward: called once, with a tensor for each of ``inputs``, of which unknown dimensions may
            differ between calls.
        weights: variables whose gradients are wanted.
        with_gradients: whether any are.
        differentiated: the inputs whose gradients are wanted, by place; default: all that have one.
    """

    def __init__(
        self,
        forward: Callable[[list[tf.Tensor]], Sequence[tf.Tensor]],
        inputs: Sequence[tf.TensorSpec],
        weights: Sequence[tf.Variable],
        with_gradients: bool,
        differentiated: Sequence[int] | None = None,
    ) -> None:
        self.x: Tensors = {}
        self.y: Tensors = {}
        self.dy: Tensors = {}
        self.dx: Tensors = {}
        self.dw: Tensors = {}

        def trace(*arguments: tf.Tensor) -> None:
            self.graph = tf.compat.v1.get_default_graph()
            self.x = {f"x{i}": x for i, x in enumerate(arguments)}
            # An output may be an input, or the same tensor as another one.
            self.y = {f"y{i}": tf.identity(y) for i, y in enumerate(forward(list(arguments)))}

        tf.function(trace, autograph=False).get_concrete_function(*inputs)
        self.forward_ops = set(self.graph.get_operations())
        self.fed = {t.name for t in self.x.values()}
        self._assigned = {
            op.inputs[0].name
            for op in self.forward_ops
            if op.type.startswith("Assign") or op.type.startswith("Resource")
            if op.inputs and op.inputs[0].dtype == tf.resource and op.type != "ResourceGather"
        }
        if with_gradients:
            # Not in the tf.function: its order of side effects would tie both halves.
            with self.graph.as_default():
                wanted = range(len(inputs)) if differentiated is None else differentiated
                self._differentiate(weights, wanted)
        self.definition = self.graph.as_graph_def()
        self._functions = {f.signature.name: f for f in self.definition.library.function}
        self.captured = {inner.name: outer for outer, inner in self.graph.captures}

    def cut(self, kinds: str, recompute: bool = False, name: str = "stage") -> dict[str, Part]:
        """The parts by kind.

        Args:
            kinds: ``"F"``, ``"FB"`` or ``"FIW"``.
            recompute: whether nothing is saved but the inputs and states.
            name: of the functions.
        """

        def lies_ready(tensor: tf.Tensor) -> bool:
            if tensor.name in self.fed:
                return True
            made_forward = tensor.op in self.forward_ops
            return made_forward and (
                self._is_state(tensor) if recompute else not self._is_cheap(tensor)
            )

        takes: dict[str, list[tf.Tensor]] = {}
        gives: dict[str, Tensors] = {}
        if kinds == "FB":
            gives["B"] = {**self.dx, **self.dw}
            takes["B"], _ = _needed(gives["B"].values(), lies_ready)
        elif kinds == "FIW":
            _, ops_of_i = _needed(self.dx.values(), lies_ready)
            gives["W"] = self.dw
            takes["W"], _ = _needed(
                self.dw.values(),
                lambda t: lies_ready(t) or (t.op in ops_of_i and not self._is_cheap(t)),
            )
            kept = {t.name: t for t in takes["W"] if t.op in ops_of_i and not lies_ready(t)}
            gives["I"] = {**self.dx, **kept}
            takes["I"], _ = _needed(gives["I"].values(), lies_ready)
        saved = {t.name: t for taken in takes.values() for t in taken if t.op in self.forward_ops}
        outputs = {tensor.name for tensor in self.y.values()}
        gives["F"] = {
            **self.y,
            **{n: t for n, t in saved.items() if n not in outputs and n not in self.fed},
        }
        takes["F"] = list(self.x.values())
        names = {t.name: public for public, t in (self.x | self.dy | self.y).items()}
        return {
            kind: self._part(kind, takes[kind], gives[kind], names, f"{name}_{kind}")
            for kind in kinds
        }

    def _differentiate(self, weights: Sequence[tf.Variable], inputs: Sequence[int]) -> None:
        y = {name: tensor for name, tensor in self.y.items() if is_differentiable(tensor.dtype)}
        wanted = {f"x{i}": self.x[f"x{i}"] for i in inputs}
        x = {name: tensor for name, tensor in wanted.items() if is_differentiable(tensor.dtype)}
        self.dy = {f"d{n}": tf.compat.v1.placeholder(t.dtype, t.shape) for n, t in y.items()}
        self.fed |= {t.name for t in self.dy.values()}
        gradients: list[Any] = [None] * (len(x) + len(weights))
        if y and gradients:
            gradients = tf.gradients(
                list(y.values()), [*x.values(), *weights], grad_ys=list(self.dy.values())
            )
        for (name, tensor), gradient in zip(x.items(), gradients, strict=False):
            # Who made x waits for a gradient, whatever is done with x here.
            dense = tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
            self.dx[f"d{name}"] = dense
        for i, gradient in enumerate(gradients[len(x) :]):
            if isinstance(gradient, tf.IndexedSlices):
                self.dw[f"dw{i}.values"] = gradient.values
                # Through a function, the graph does not say it any more.
                kind = "rows" if are_distinct(gradient) else "indices"
                kind = "positions" if self._is_of_no_sample(gradient.indices) else kind
                self.dw[f"dw{i}.{kind}"] = gradient.indices
            elif gradient is not None:
                self.dw[f"dw{i}"] = gradient

    def _is_of_no_sample(self, tensor: tf.Tensor) -> bool:
        """Whether it is the same for all micro-batches: made of constants and variables alone."""
        seen, left = set[tf.Operation](), [tensor]
        while left:
            one = left.pop()
            if one.name in self.fed or one.name in self._assigned:
                return False
            if one.op not in seen:
                seen.add(one.op)
                if one.op.op_def.is_stateful and one.op.type != "ReadVariableOp":
                    return False
                left += one.op.inputs
        return True

    def _is_cheap(self, tensor: tf.Tensor) -> bool:
        """Constants, weights, resources, and other views of a tensor: not worth being saved."""
        op = tensor.op
        if tensor.name in self.captured or op.type in ("Const", "Identity", "Reshape"):
            return True
        return op.type == "ReadVariableOp" and op.inputs[0].name not in self._assigned

    def _is_state(self, tensor: tf.Tensor) -> bool:
        """What would not be the same if it were computed again."""
        op = tensor.op
        if not op.op_def.is_stateful or self._is_cheap(tensor) or op.type == "Placeholder":
            return False
        reads_assigned = any(x.name in self._assigned for x in op.inputs)
        return reads_assigned or not only_reads(op.node_def, self._functions)

    def _part(
        self,
        kind: str,
        takes: Sequence[tf.Tensor],
        gives: Tensors,
        names: dict[str, str],
        name: str,
    ) -> Part:
        """The ops between tensors, as a function."""
        takes = [t for t in takes if t.name not in self.captured]
        taken = {t.name for t in takes}
        _, needed = _needed(gives.values(), lambda t: t.name in taken or t.name in self.captured)
        if kind == "F":
            needed |= self.forward_ops
        needed -= {t.op for t in takes if t.op.type == "Placeholder"}
        ops = [op for op in needed if not any(t.name in self.captured for t in op.outputs)]
        definition = _excerpt(self.definition, {op.name for op in ops})

        taken_by_ops = {name for node in definition.node for name in node.input if name[0] != "^"}
        inputs = {name if ":" in name else f"{name}:0" for name in taken_by_ops}

        def run(*arguments: tf.Tensor) -> list[tf.Tensor]:
            graph = tf.compat.v1.get_default_graph()
            share_functions(self.graph, graph)
            known = {t.name: a for t, a in zip(takes, arguments, strict=True)}
            outputs = {t.name for t in gives.values()}
            for name in (inputs | outputs) & self.captured.keys():
                known[name] = graph.capture(self.captured[name])
            made = [name for name in outputs if name not in known]
            given = {name: tensor for name, tensor in known.items() if name in inputs}
            copies = tf.graph_util.import_graph_def(definition, given, made, name="")
            known.update(zip(made, copies, strict=True))
            return [known[t.name] for t in gives.values()]

        # One node where it is called: tracing does not grow with the number of calls.
        function = tf.function(
            run, autograph=False, experimental_attributes={"_noinline": True}
        ).get_concrete_function(*(tf.TensorSpec(t.shape, t.dtype) for t in takes))
        return Part(function, tuple(names.get(t.name, t.name) for t in takes), tuple(gives))


def _needed(
    targets: Iterable[tf.Tensor], lies_ready: Callable[[tf.Tensor], bool]
) -> tuple[list[tf.Tensor], set[tf.Operation]]:
    """What targets are computed from: tensors that lie ready, and the ops in between."""
    ready: Tensors = {}
    ops: set[tf.Operation] = set()
    queue = list(targets)
    while queue:
        tensor = queue.pop()
        if lies_ready(tensor):
            ready[tensor.name] = tensor
        elif tensor.op not in ops:
            ops.add(tensor.op)
            queue.extend(tensor.op.inputs)
    return list(ready.values()), ops


def _excerpt(graph: Any, names: set[str]) -> Any:
    """The ops of a tf.compat.v1.GraphDef that have these names, without those that they wait for
    elsewhere."""
    part = tf.compat.v1.GraphDef(versions=graph.versions)
    for node in graph.node:
        if node.name in names:
            copy = part.node.add()
            copy.CopyFrom(node)
            copy.attr.pop("_class", None)  # what to be near to: it may be elsewhere too
            inside = [n for n in node.input if n[0] != "^" or n[1:] in names]
            del copy.input[:]
            copy.input.extend(inside)
    return part
