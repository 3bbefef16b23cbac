"""Models that are distributed as Keras says it, by keras.distribution: the result is that of one
process."""

import contextlib
from typing import Any

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.layers.mapped import GRID, MIXED, layout_map, mixed, mlp
from tests.parallel.outcome import Outcome, close, compare, train
from tests.pipeline.models import numbers
from tnt_notebook.errors import DisagreementError, MeshError

kd = keras.distribution

#: Columns and rows of uneven sizes; and what is between others, in a layout of its own.
PAIR = {
    "mlp/second/kernel": (None, "model"), "mlp/second/bias": ("model",),
    "mlp/third/kernel": ("model", None), "mlp/first/output": ("batch", "model"),
}  # fmt: skip

CASES: dict[str, tuple[Any, ...]] = {
    "layers on two ranks": (mlp, (1, 2), PAIR),
    "batches and layers": (mixed, (2, 2), MIXED),
    "batches": (mlp, (2,), None),
}


def distribution(name: str) -> Any:
    assert tnt.Model  # which is loaded now: from here on ranks are devices
    _, shape, layouts = CASES[name]
    if layouts is None:
        return kd.DataParallel()
    devices = kd.list_devices()
    return kd.ModelParallel(layout_map=layout_map(shape, GRID, layouts, devices))


def fitted(name: str, model: str, distributed: bool) -> Outcome:
    """In a scope the model is built in, by a DataParallel; else the distribution is set."""
    make = CASES[name][0]
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    chosen = distribution(name) if distributed else None
    by_scope = isinstance(chosen, kd.DataParallel)

    def compiled() -> keras.Model:
        keras.utils.set_random_seed(7)
        with chosen.scope() if by_scope else contextlib.nullcontext():
            built = make()
        built.compile(keras.optimizers.Adam(0.01, clipnorm=0.05), "mse", metrics=["mae"])
        return built

    try:
        if not by_scope:
            kd.set_distribution(chosen)
        x, y = numbers(25, *make().input_shape[1:]), numbers(25, 3, seed=9)
        fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2, "validation_data": (x, y)}
        return train(compiled, fit, distributed)
    finally:
        kd.set_distribution(None)
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


@pytest.mark.core
@pytest.mark.parametrize("name", CASES)
def test_fit(ranks, name):
    make, shape, _ = CASES[name]
    size, model = int(np.prod(shape)), make.__name__
    # One process trains a model once, however it is distributed.
    alone = (next(other for other in CASES if CASES[other][0] is make), model, False)
    args = (name, model, True)
    ours, theirs = compare(ranks, size, fitted, *args, alone=alone, rtol=1e-7, atol=1e-9)
    close(ours.optimizer, theirs.optimizer, 1e-7, 1e-9)


def changes_of_distribution() -> tuple[Any, ...]:
    """One model, by a mesh, by batches, and without a distribution."""
    keras.utils.set_random_seed(3)
    model = mlp()
    model.compile("sgd", "mse")
    x, y = numbers(9, 4), numbers(9, 3, seed=9)
    with tnt.distributed() as session:
        with distribution("layers on two ranks").scope():
            assert kd.distribution().batch_dim_name == "batch"
            losses = [model.train_on_batch(x, y)]
            ways = [*session.functions[id(model)].placement.layers.program.ways]
        with kd.DataParallel().scope():
            losses.append(model.train_on_batch(x, y))
            assert session.functions[id(model)].placement.layers is None
        losses.append(model.train_on_batch(x, y))
    assert kd.distribution() is None
    return losses, [{axis: way.name for axis, way in way.items()} for way in ways], mlp_alone()


def mlp_alone() -> list[float]:
    keras.utils.set_random_seed(3)
    model = mlp()
    model.compile("sgd", "mse")
    x, y = numbers(9, 4), numbers(9, 3, seed=9)
    return [model.train_on_batch(x, y) for _ in range(3)]


def test_a_model_goes_by_the_distribution_that_is_set(ranks):
    for losses, ways, alone in ranks.run(2, changes_of_distribution):
        np.testing.assert_allclose(losses, alone, 1e-5)
        assert [way.get("model") for way in ways[1:]] == ["columns", "rows"]


class Relaying(keras.Layer):
    """Wants to change a layout itself."""

    def call(self, x: Any) -> Any:
        mesh = kd.DataParallel().device_mesh
        return kd.distribute_tensor(x, kd.TensorLayout(("batch", None), mesh))


def refusals() -> list[str]:
    x, y = numbers(4, 4), numbers(4, 3)
    rank = tnt.world().rank

    def why(error: type[Exception], chosen: Any, *layers: Any, **given: Any) -> str:
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        with pytest.raises(error) as raised, chosen.scope():
            tnt.Model(model, **given).fit(x, y, verbose=0)
        return str(raised.value)

    both, parts = distribution("batches"), distribution("layers on two ranks")
    with pytest.raises(MeshError) as raised:
        kd.initialize(num_processes=3)
    kd.initialize(num_processes=2, process_id=rank)
    return [
        ",".join(kd.list_devices()),
        f"{kd.get_device_count()} {kd.list_devices('gpu')} {kd.list_devices('cpu')}",
        str(raised.value),
        why(MeshError, kd.DataParallel(devices=["cpu:0"])),
        why(MeshError, kd.DataParallel(auto_shard_dataset=False)),
        why(MeshError, both, mesh=tnt.Mesh(model=2)),
        why(MeshError, parts, pipeline=tnt.Pipeline(stages=2)),
        why(DisagreementError, both if rank else parts),
        why(MeshError, both, Relaying()),
    ]


def test_what_cannot_be_is_refused(ranks):
    said = ranks.run(2, refusals)[0]
    expected = (
        "cpu:0,cpu:1", "2 [] ['cpu:0', 'cpu:1']", "Leave its arguments out",
        "there are 2 ranks", "each reads its part", "a mesh is given", "a pipeline is given",
        "ModelParallel; mesh batch=1, model=2 of cpu:0, cpu:1;", "it in the LayoutMap",
    )  # fmt: skip
    assert len(said) == len(expected)
    for text, part in zip(said, expected, strict=True):
        assert part in text
