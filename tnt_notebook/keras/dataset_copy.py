"""A ``tf.data`` pipeline once more, which shares no state with the first: where one is read beside
training, the order of later epochs stays what it would have been."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

#: Ops that keep what iterators share in a resource, and the place of that among their inputs.
_SEEDS = {"ShuffleDatasetV2": 2, "ShuffleDatasetV3": 4, "ShuffleAndRepeatDatasetV2": 5,
          "RandomDatasetV2": 2}  # fmt: skip
_CACHES = {"CacheDatasetV2": 2}
_IGNORE = 1  # of the policies for state outside: tables and variables stay the same ones


def copy_of(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset of the same ops, whose shuffles begin anew, with other seeds, and whose caches in
    memory are empty. Functions in Python, tables and variables are those of the first."""
    variant = tf.data.experimental.to_variant(dataset)
    serialized = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=_IGNORE)
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    (end,) = (node for node in graph.node if node.op == "_Retval")
    last = _tensor(end.input[0])
    graph.node.remove(end)
    fresh: dict[str, tf.Tensor] = {}
    kept: list[Any] = []  # who lets go of these ends what was made
    for number, node in enumerate(graph.node):
        if node.op in _SEEDS:
            handle, deleter = tf.raw_ops.AnonymousSeedGenerator(
                seed=number + 1, seed2=1, reshuffle=_reshuffles(node)
            )
        elif node.op in _CACHES:
            handle, deleter = tf.raw_ops.AnonymousMemoryCache()
        else:
            continue
        fresh[_tensor(node.input[(_SEEDS | _CACHES)[node.op]])] = handle
        kept += [handle, deleter]

    def imported() -> tf.Tensor:
        given = {name: tf.identity(handle) for name, handle in fresh.items()}
        (variant,) = tf.graph_util.import_graph_def(
            graph, input_map=given, return_elements=[last], name=""
        )
        return variant

    made = tf.compat.v1.wrap_function(imported, [])
    copied = tf.data.experimental.from_variant(made(), dataset.element_spec)
    copied.kept = (made, kept)
    return copied


def _reshuffles(node: Any) -> bool:
    for name in ("reshuffle_each_iteration", "rerandomize_each_iteration"):
        if name in node.attr:
            return bool(node.attr[name].b)
    return True


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"
