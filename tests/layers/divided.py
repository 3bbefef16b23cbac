"""A layer on blocks, and the same layer whole, on the ranks of a mesh."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.comm import channels, ops
from tnt_notebook.keras.blocks import Block
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.program import Program, fit_together, layer_call_of
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.rule import Way, ways_of
from tnt_notebook.parallel.layers.weight_blocks import index_of
from tnt_notebook.plan.mesh import Mesh

SAMPLES = 2

#: Makes a layer, and the shapes of what it takes.
Case = tuple[Callable[[], keras.Layer], Sequence[tuple[int, ...]]]


#: Of channels: what was sent last may still be on its way.
_PARTS = 32


def ways_tried(mesh: Mesh, make: Callable[[], keras.Layer], shapes: Any) -> list[list[str]]:
    """Runs a layer in all ways that its rule has on a mesh, and whole, forward and backward in
    float64; raises where they differ. Gives the names of the ways."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        return _tried(mesh, make, shapes)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def _tried(mesh: Mesh, make: Callable[[], keras.Layer], shapes: Any) -> list[list[str]]:
    keras.utils.set_random_seed(1)
    inputs = [keras.Input(shape) for shape in shapes]
    model = keras.Model(inputs, make()(inputs[0] if len(inputs) == 1 else inputs))
    graph = surveyed(model)
    layer_call = layer_call_of(graph, graph.calls[0])
    ranks = MeshRanks(comm.world(), mesh)
    each = [ways_of(layer_call, axis, mesh.along(axis)) for axis in mesh.inner]
    rng = np.random.default_rng(4)
    x = [tf.constant(rng.normal(size=(SAMPLES, *shape))) for shape in shapes]
    if isinstance(layer_call.layer, keras.layers.Embedding):
        x = [tf.floor(tf.abs(numbers)) for numbers in x]
    # Of random layers the state, too: what they draw next.
    before = [np.asarray(v.value) for v in model.variables]
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x, training=True)
        dy = tf.constant(rng.normal(size=y.shape))
        product = tf.reduce_sum(y * dy)
    gx, gw = tape.gradient(product, [x, [v.value for v in model.trainable_variables]])
    expected = [gx, [_dense(*each) for each in zip(model.trainable_variables, gw, strict=True)]]
    after = model.get_weights()
    names = []
    for combination in itertools.product(*each):
        ways = dict(zip(mesh.inner, combination, strict=True))
        if fit_together(layer_call, ways):
            for variable, value in zip(model.variables, before, strict=True):
                variable.assign(value)
            over = channels.TRAINING.part(len(names) % _PARTS, _PARTS)
            names.append([way.name for way in combination])
            whole = [y, *expected, after]
            _compare(model, Program(graph, [ways]), ranks, x, dy, whole, ways, over)
    ranks.over.barrier()
    return names


def traced_alike(mesh: Mesh, make: Callable[[], keras.Layer], shapes: Any) -> list[list[str]]:
    """What this rank traces of a layer in each way, forward and backward: the kinds of ops, and on
    which channels exchanges are; where Keras traces by sizes of blocks these alone."""
    inputs = [keras.Input(shape) for shape in shapes]
    model = keras.Model(inputs, make()(inputs[0] if len(inputs) == 1 else inputs))
    graph = surveyed(model)
    layer_call, ranks = layer_call_of(graph, graph.calls[0]), MeshRanks(comm.world(), mesh)
    (axis,) = mesh.inner
    result = []
    for way in ways_of(layer_call, axis, mesh.along(axis)):
        program = Program(graph, [{axis: way}])
        blocks = [
            Block(v, index_of(v.shape, program.weights[id(v)], ranks)) for v in model.variables
        ]
        for block in blocks:
            block.cut()

        def step(program: Program, *x: tf.Tensor) -> Any:
            with ops.channels(channels.TRAINING), tf.GradientTape() as tape:
                tape.watch(x)
                values = dict(zip(graph.inputs, x, strict=True))
                y = program.run(values, ranks, training=True)
                return tape.gradient(y, [x, [v.value for v in model.trainable_variables]])

        specs = [tf.TensorSpec((None, *shape)) for shape in shapes]
        step_of_way = functools.partial(step, program)
        made = tf.function(step_of_way, autograph=False).get_concrete_function(*specs).graph
        kinds = [_described(op) for op in made.get_operations()]
        is_cut = any(layout.splits for layout in program.weights.values())
        if is_cut or isinstance(layer_call.layer, keras.layers.TimeDistributed):
            # Keras adds a bias of one number in another way than others, and unrolls steps.
            kinds = [kind for kind in kinds if kind.startswith("Tnt")]
        result.append(kinds)
        for block in blocks:
            block.join(lambda _, shape=block.whole_shape: np.zeros(shape))
    return result


def _dense(variable: keras.Variable, gradient: Any) -> tf.Tensor:
    """Zeros of a weight that this call does not use."""
    return tf.zeros_like(variable.value) if gradient is None else tf.convert_to_tensor(gradient)


def _described(op: tf.Operation) -> str:
    names = op.node_def.attr
    return f"{op.type} {names['channel'].i} {names['label'].s}" if "channel" in names else op.type


def _compare(
    model: keras.Model, program: Program, ranks: MeshRanks, x: Any, dy: Any, expected: Any,
    ways: dict[str, Way], over: channels.Range,
) -> None:  # fmt: skip
    layouts = program.weights
    cut = {id(v): index_of(v.shape, layouts[id(v)], ranks) for v in model.variables}
    own = [Block(v, cut[id(v)]) for v in model.variables]
    for block in own:
        block.cut()
    trained = model.trainable_variables
    try:
        with ops.channels(over):
            with tf.GradientTape() as tape:
                tape.watch(x)
                values = dict(zip(program.graph.inputs, x, strict=True))
                y = program.run(values, ranks, training=True)
                product = tf.reduce_sum(y * dy)
            of_x, of_weights = tape.gradient(product, [x, [v.value for v in trained]])
            of_weights = [
                ops.allreduce([_dense(v, g)], over=ranks.group(layouts[id(v)].summed))[0]
                if layouts[id(v)].summed
                else _dense(v, g)
                for v, g in zip(trained, of_weights, strict=True)
            ]
        after = [np.asarray(v.value) for v in model.weights]
    finally:
        for block in own:
            block.join(lambda _, shape=block.whole_shape: np.zeros(shape))
    where = f"{ {axis: way.name for axis, way in ways.items()} }, rank {ranks.over.rank}"
    whole, gx, gw, state = expected

    def same(a: Any, b: Any, what: str) -> None:
        np.testing.assert_allclose(a, b, 1e-9, 1e-10, err_msg=f"{what}: {where}")

    same(y, whole, "output")
    for a, b in zip(of_x, gx, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            same(a, b, "gradient of the input")
    for a, b, v in zip(of_weights, gw, trained, strict=True):
        same(a, np.asarray(b)[cut[id(v)]], f"gradient of {v.path}")
    for a, b, v in zip(after, state, model.weights, strict=True):
        same(a, b[cut[id(v)]], f"state {v.path}")
