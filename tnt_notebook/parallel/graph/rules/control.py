"""Ops that call functions: loops, branches, calls. In these ops are decided on as around them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tnt_notebook.parallel.graph.layouts import SAME, SIZE, Layout, Rows, common, meets
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


def _outputs(graph: Any, facts: Any) -> list[Layout]:
    return [facts.layout(tensor) for tensor in graph.outputs]


@rule("PartitionedCall", "StatefulPartitionedCall")
def call(node: Node) -> Decision | None:
    if not (graphs := node.functions):
        return None
    (graph,) = graphs
    facts, decisions = node.decide(graph, node.has, node.inputs)
    numbers = {i: facts.numbers.get(out.name) for i, out in enumerate(graph.outputs)}
    # Of a size of which only the function knows how samples count in it, it gives the number.
    gives = [
        SAME if has == SIZE and not _is_counted(numbers[i]) else has
        for i, has in enumerate(_outputs(graph, facts))
    ]

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        return emission.inside(graph, facts, decisions, inputs, gives)

    known = {i: found for i, found in numbers.items() if found is not None and _are_of_all(found)}
    return Decision(node.has, gives, emit, known, _meets(decisions))


@rule("If", "StatelessIf", "Case", "StatelessCase")
def branches(node: Node) -> Decision | None:
    """All branches give their results in one layout."""
    if not (graphs := node.functions):
        return None
    made = [node.decide(graph, node.has[1:], node.inputs[1:]) for graph in graphs]
    each = [_outputs(graph, facts) for graph, (facts, _) in zip(graphs, made, strict=True)]
    gives = [functools.reduce(common, layouts) for layouts in zip(*each, strict=True)]
    gives = [SAME if has == SIZE else has for has in gives]

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        def branch(index: int) -> list[tf.Tensor]:
            return emission.inside(graphs[index], *made[index], inputs[1:], gives)

        if "If" in node.type:
            chosen = tf.cast(inputs[0], tf.bool)
            return _listed(tf.cond(chosen, lambda: branch(0), lambda: branch(1)))
        taken = [functools.partial(branch, index) for index in range(len(graphs))]
        return _listed(tf.switch_case(inputs[0], taken))

    meets_within = any(
        _meets(decisions, facts, zip(graph.outputs, gives, strict=True))
        for graph, (facts, decisions) in zip(graphs, made, strict=True)
    )
    return Decision([SAME, *node.has[1:]], gives, emit, meets=meets_within)


@rule("While", "StatelessWhile")
def loop(node: Node) -> Decision | None:
    """Each turn begins with its values in the layouts in which the one before has left them."""
    if not (graphs := node.functions):
        return None
    condition, body = graphs
    is_kept = [_is(own, out) for own, out in zip(body.inputs, body.outputs, strict=True)]
    given = [
        tensor if kept or tensor.dtype == tf.variant else None
        for tensor, kept in zip(node.inputs, is_kept, strict=True)
    ]
    layouts: list[Layout] = [
        # Nor is it known of what has no known rank where its samples are.
        SAME if (has == SIZE and not kept) or (isinstance(has, Rows) and own.shape.rank is None)
        else has
        for has, own, kept in zip(node.has, body.inputs, is_kept, strict=True)
    ]  # fmt: skip
    settled: set[int] = set()  # which have come in several layouts, and are kept whole
    while True:
        facts, decisions = node.decide(body, layouts, given)
        new = [
            has if kept or i in settled else common(has, out)
            for i, (has, out, kept) in enumerate(
                zip(layouts, _outputs(body, facts), is_kept, strict=True)
            )
        ]
        settled |= {i for i, has in enumerate(new) if has == SAME != layouts[i]}
        if new == layouts:
            break
        layouts = new
    asked = node.decide(condition, layouts, given)
    moving = [i for i, kept in enumerate(is_kept) if not kept]
    shapes = [body.inputs[i].shape for i in moving]

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        def values(turning: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            now = list(inputs)
            for i, value in zip(moving, turning, strict=True):
                now[i] = value
            return now

        def goes_on(*turning: tf.Tensor) -> tf.Tensor:
            return emission.inside(condition, *asked, values(turning), [SAME])[0]

        def turn(*turning: tf.Tensor) -> list[tf.Tensor]:
            made = emission.inside(body, facts, decisions, values(turning), layouts)
            for i, shape in zip(moving, shapes, strict=True):
                made[i].set_shape(shape)  # which copies of ops may not know any more
            return [made[i] for i in moving]

        # Where ranks meet in a turn, it ends before the next one begins.
        last = tf.while_loop(
            goes_on,
            turn,
            [inputs[i] for i in moving],
            shape_invariants=shapes,
            parallel_iterations=1,
        )
        return values(last)

    numbers = {
        i: facts.numbers[out.name]
        for i, out in enumerate(body.outputs)
        if out.dtype == tf.variant and _are_of_all(facts.numbers.get(out.name))
    }
    meets_within = _meets(asked[1], asked[0], [(condition.outputs[0], SAME)]) or _meets(
        decisions, facts, zip(body.outputs, layouts, strict=True)
    )
    return Decision(layouts, layouts, emit, numbers, meets_within)


def _meets(
    decisions: Sequence[Any], facts: Any = None, returned: Iterable[tuple[Any, Layout]] = ()
) -> bool:
    """Whether ranks tell each other something in a function."""
    return any(
        each.decision.meets or any(map(meets, each.has, each.decision.wants)) for each in decisions
    ) or any(meets(facts.layout(tensor), want) for tensor, want in returned)


def _are_of_all(counts: np.ndarray | None) -> bool:
    """Whether numbers mean something outside of the function that computes them."""
    return counts is not None and all(each is None or not each.of for each in counts.ravel())


def _is_counted(counts: np.ndarray | None) -> bool:
    """Whether it is known outside, too, how samples count in each of these numbers."""
    return counts is not None and _are_of_all(counts) and None not in counts.ravel().tolist()


def _is(own: tf.Tensor, out: tf.Tensor) -> bool:
    """Whether an output of a body is an input of it, as it was given."""
    while out is not own and out.op.type == "Identity":
        out = out.op.inputs[0]
    return out is own


def _listed(value: Any) -> list[tf.Tensor]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
