"""Weights that are cut, of a model that was built lazily: no rank has one whole."""

import contextlib

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.pipeline.models import numbers
from tnt_notebook.errors import ModelError
from tnt_notebook.keras import initial

SHAPE = (9, 5, 14)
INDICES = [
    (slice(0, 3), slice(None), slice(None)), (slice(None), slice(2, 5), slice(None)),
    (slice(None), slice(None), slice(7, 14)), (slice(6, 9), slice(0, 2), slice(3, 4)),
]  # fmt: skip


@pytest.mark.core
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["GlorotUniform", "HeNormal", "LecunNormal", "RandomNormal", "Zeros", "Ones"]
)
def test_a_block_of_initial_values_is_that_of_the_whole(name, dtype, monkeypatch):
    monkeypatch.setattr(initial, "_AT_ONCE", 40)
    random = name not in ("Zeros", "Ones")
    initializer = getattr(keras.initializers, name)(**{"seed": 4} if random else {})
    whole = np.asarray(initializer(SHAPE, dtype=dtype))
    for index in INDICES:
        block = np.asarray(initial.initial_block(initializer, SHAPE, dtype, index))
        assert block.shape == whole[index].shape
        assert block.tobytes() == np.ascontiguousarray(whole[index]).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_blocks_are_drawn_without_the_whole(dtype):
    assert initial._draws_in_pieces(dtype)


def test_what_cannot_be_drawn_in_blocks_is_cut():
    initializer = keras.initializers.Orthogonal(seed=4)
    whole = np.asarray(initializer((6, 4)))
    block = initial.initial_block(initializer, (6, 4), "float32", (slice(2, 4), slice(None)))
    np.testing.assert_array_equal(block, whole[2:4])


def mlp() -> keras.Model:
    hidden = keras.layers.Dense(10, "relu", name="first", bias_initializer="ones")
    last = keras.layers.Dense(7, name="second", kernel_initializer="he_normal")
    return keras.Sequential([keras.Input((6,)), hidden, last])


PAIR = {"first": tnt.Split(columns="model"), "second": tnt.Split(rows="model")}


def trained(distributed: bool, path: str) -> tuple[list[float], list[np.ndarray]]:
    """Losses of two fits and an evaluation, and what was saved between; on ranks, of a model that
    was built lazily."""
    keras.utils.set_random_seed(7)
    with tnt.lazy() if distributed else contextlib.nullcontext():
        model = mlp()
    model.compile(keras.optimizers.Adam(0.01), "mse")
    x, y = numbers(12, 6), numbers(12, 7, seed=9)
    mesh, layouts = tnt.Mesh(data=2, model=2), PAIR
    ours = tnt.Model(model, mesh=mesh, layouts=layouts) if distributed else model
    losses = ours.fit(x, y, batch_size=4, epochs=2, verbose=0).history["loss"]
    if distributed:
        kernel = model.get_layer("first").kernel
        assert kernel.shape == (6, 10)
        with pytest.raises(ModelError, match="is in blocks on several ranks"):
            np.asarray(kernel)
    ours.save(path)
    losses += ours.fit(x, y, batch_size=4, verbose=0).history["loss"]
    losses.append(ours.evaluate(x, y, verbose=0))
    return losses, [np.asarray(w) for w in keras.models.load_model(path).get_weights()]


@pytest.mark.core
def test_what_is_built_lazily_trains_in_blocks(ranks, tmp_path):
    ((losses, weights),) = ranks.run(1, trained, False, str(tmp_path / "one.keras"))
    for ours, saved in ranks.run(4, trained, True, str(tmp_path / "four.keras")):
        np.testing.assert_allclose(ours, losses, 1e-5)
        for a, b in zip(saved, weights, strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-6)
