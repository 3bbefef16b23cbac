"""Training on a mesh is that of one process: weights, history, evaluation, predictions, and what
optimizers keep."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, close, compare, train
from tests.pipeline.models import numbers
from tnt_notebook import comm
from tnt_notebook.errors import DifferentDataError, MeshError
from tnt_notebook.parallel.layers.program import Program

L = keras.layers
IN_SPACE = {"conv.*|.*pool.*": tnt.Split(height="height")}


def mlp() -> keras.Model:
    hidden = L.Dense(10, "relu", kernel_regularizer="l2", name="first")
    return keras.Sequential([keras.Input((6,)), hidden, L.Dense(7, name="second"), L.Dense(3)])


def cnn() -> keras.Model:
    x = keras.Input((9, 6, 2))
    y = L.Conv2D(4, 3, padding="same", use_bias=False, name="conv_1")(x)
    y = L.ReLU()(L.BatchNormalization(synchronized=True)(y))
    y = L.Add()([y, L.Conv2D(4, 3, padding="same", name="conv_2", kernel_regularizer="l2")(y)])
    y = L.MaxPooling2D(2, name="pool")(y)
    y = L.GlobalAveragePooling2D(name="pool_all")(L.Conv2D(5, 3, name="conv_3")(y))
    return keras.Model(x, L.Dense(3)(y))


def branches() -> keras.Model:
    x = keras.Input((8, 6, 2))
    wide = L.Conv2D(3, 5, padding="same", activation="relu")(x)
    narrow = L.Conv2D(2, 3, padding="same", activation="relu")(x)
    pooled = L.Conv2D(2, 1)(L.MaxPooling2D(3, 1, padding="same")(x))
    y = L.Conv2D(4, 3, padding="same")(L.Concatenate()([wide, narrow, pooled]))
    return keras.Model(x, L.Dense(3)(L.GlobalAveragePooling2D()(y)))


def masked() -> keras.Model:
    return keras.Sequential(
        [keras.Input((5, 4)), L.Masking(), L.Dense(6, name="first"), L.Dense(3, name="second")]
    )


PAIR = {"first": tnt.Split(columns="model"), "second": tnt.Split(rows="model")}
CASES: dict[str, tuple[Any, ...]] = {
    "columns and rows": (mlp, tnt.Mesh(model=2), PAIR, {"clipnorm": 0.05}),
    "with replicas": (mlp, tnt.Mesh(data=2, model=2), PAIR, {"global_clipnorm": 0.05}),
    "in two dimensions": (
        mlp, tnt.Mesh(a=2, b=2), {"first": tnt.Split(columns="a", rows="b")}, {"clipnorm": 0.05},
    ),
    "in space": (cnn, tnt.Mesh(height=2), IN_SPACE, {}),
    "in space, on three": (cnn, tnt.Mesh(height=3), {"conv_[12]": IN_SPACE["conv.*|.*pool.*"]}, {}),
    "in space, with replicas": (cnn, tnt.Mesh(data=2, height=2), IN_SPACE, {"use_ema": True}),
    "filters and channels": (
        cnn, tnt.Mesh(model=2),
        {"conv_[13]": tnt.Split(filters="model"), "conv_2": tnt.Split(channels="model")}, {},
    ),
    "branches": (
        branches, tnt.Mesh(height=3), {".*conv.*|.*pool.*": tnt.Split(height="height")}, {},
    ),
    "masked": (masked, tnt.Mesh(model=2), PAIR, {}),
    "in space and filters": (
        cnn, tnt.Mesh(height=2, model=2),
        {"conv_1": tnt.Split(height="height", filters="model")}, {},
    ),
}  # fmt: skip


def fitted(name: str, distributed: bool) -> Outcome:
    make, mesh, layouts, options = CASES[name]
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:

        def compiled() -> keras.Model:
            model = make()
            model.compile(keras.optimizers.Adam(0.01, **options), "mse", metrics=["mae"])
            return model

        shape, outputs = make().input_shape[1:], make().output_shape[1:]
        x, y = numbers(25, *shape), numbers(25, *outputs, seed=9)
        if name == "masked":
            x[::3, 2:] = 0
        fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2, "validation_data": (x, y)}
        shares = (2, 1) if mesh.along("data") == 2 else None
        more = {"mesh": mesh, "layouts": layouts, "shares": shares} if distributed else {}
        return train(compiled, fit, distributed, {"x": x, "y": y, "batch_size": 7}, more=more)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


#: Which rules and others of these cases have, too.
LONG = ("with replicas", "in two dimensions", "in space", "in space, on three")


@pytest.mark.core
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.thorough) if n in LONG else n for n in CASES],
)
def test_fit(ranks, name):
    size = CASES[name][1].size
    ours, theirs = compare(ranks, size, fitted, name, rtol=1e-7, atol=1e-9)
    close(ours.optimizer, theirs.optimizer, 1e-7, 1e-9)


def refusals() -> list[str]:
    def why(error: type[Exception], **given: Any) -> str:
        model = mlp()
        model.compile("sgd", "mse")
        with pytest.raises(error) as raised:
            tnt.Model(model, **given).fit(np.zeros((4, 6)), np.zeros((4, 3)), verbose=0)
        return str(raised.value)

    mesh = tnt.Mesh(model=2)
    return [
        why(MeshError, mesh=tnt.Mesh(data=3, model=2)),
        why(MeshError, mesh=mesh, layouts={"first": tnt.Split(height="model")}),
        why(MeshError, mesh=mesh, layouts={"first": tnt.Split(columns="other")}),
        why(MeshError, mesh=mesh, layouts={"third": tnt.Split(columns="model")}),
        why(MeshError, layouts=PAIR),
    ]


def test_what_cannot_be_divided_is_refused(ranks):
    said = ranks.run(2, refusals)[0]
    expected = (
        "needs 6 ranks, and there are 2", "first cannot be divided by Split", "no axis 'other'",
        "No layer has a name like 'third'", "layouts needs a mesh",
    )  # fmt: skip
    assert len(said) == len(expected)
    for text, part in zip(said, expected, strict=True):
        assert part in text


def divided_in(source: str, folder: str) -> tuple[dict[str, list[float]], tuple[int, ...], int]:
    """What is learnt from samples of some source; the shape in which a rank gets them; and the most
    rows of any value in the graph of a step."""
    x, y = numbers(6, 9, 6, 2), numbers(6, 3, seed=9)
    if comm.rank() == 0:
        np.save(f"{folder}/x.npy", x)
    comm.world().barrier()
    given: dict[str, Any] = {"x": x, "y": y, "batch_size": 4, "shuffle": False}
    if source == "files":
        given = {"x": tnt.data.arrays(f"{folder}/x.npy", y).batch(4)}
    if source == "a generator":
        batches = ((x[i : i + 4], y[i : i + 4]) for i in (0, 4))
        given = {"x": batches, "steps_per_epoch": 2, "shuffle": False}
    keras.utils.set_random_seed(7)
    model = cnn()
    model.compile("sgd", "mse")
    trained = tnt.Model(model, mesh=tnt.Mesh(height=2), layouts=IN_SPACE)
    seen: list[tuple[Any, tf.Graph]] = []
    own = Program.run

    def run(program: Program, inputs: Any, *more: Any, **named: Any) -> Any:
        seen.append((tuple(inputs[0].shape[1:]), tf.compat.v1.get_default_graph()))
        return own(program, inputs, *more, **named)

    Program.run = run
    try:
        history = trained.fit(**given, verbose=0)
    finally:
        Program.run = own
    shape, graph = seen[0]
    values = (value.shape for op in graph.get_operations() for value in op.outputs)
    return history.history, shape, max(s[1] or 0 for s in values if s.rank == 4)


def test_a_rank_gets_blocks_of_samples(ranks, tmp_path):
    sources = ("arrays", "files", "a generator")
    found = [ranks.run(2, divided_in, source, str(tmp_path)) for source in sources]
    for of_ranks in found:
        assert [shape for _, shape, _ in of_ranks] == [(5, 6, 2), (4, 6, 2)]
        assert [history for history, _, _ in of_ranks] == [found[0][0][0]] * 2
        # No value is whole: of 9 rows there are 5, and one of a halo.
        assert max(rows for _, _, rows in of_ranks) < 8


def other_samples() -> str:
    model = cnn()
    model.compile("sgd", "mse")
    before = model.get_weights()
    x = numbers(4, 9, 6, 2, seed=comm.rank())
    trained = tnt.Model(model, mesh=tnt.Mesh(height=2), layouts=IN_SPACE)
    with pytest.raises(DifferentDataError) as raised:
        trained.fit(x, np.zeros((4, 3)), verbose=0)
    for weight, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, now)
    return str(raised.value)


def test_different_samples_are_refused_before_the_first_step(ranks):
    for said in ranks.run(2, other_samples):
        assert "Ranks [1] got different samples from rank 0" in said
