"""Every model of keras.applications, at the smallest images that it takes: its predictions and one
step of training are those of one process.

Numbers have 64 bits, so that what differs by more than rounding is a fault, whatever a hundred
layers without trained weights make of it; the largest two models, of 0.2 and 0.35 billion weights
and well conditioned, have 32. Nothing is dropped, as ranks draw numbers of their own. Batch
normalization sees the whole batch: synchronized over ranks, and in a pipeline in one micro-batch.
"""

import gc
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.pipeline.training import cut_evenly
from tnt_notebook import comm

NAMES = sorted(
    name for name, made in vars(keras.applications).items() if name[0].isupper() and callable(made)
)
LARGEST = ("ConvNeXtLarge", "ConvNeXtXLarge")

#: Pixels along a side, where less than this is refused; with less, NASNet's numbers depend on the
#: sign of rounding, as what its last cells normalize is the same for all samples.
LEAST = {
    "NASNetLarge": 96,
    "NASNetMobile": 96,
    "InceptionResNetV2": 75,
    "InceptionV3": 75,
    "Xception": 71,
}

SAMPLES = 4  # on three ranks two have one, and one has two


def built(name: str) -> keras.Model:
    side = LEAST.get(name, 32)
    model = getattr(keras.applications, name)(
        weights=None, classes=5, input_shape=(side, side, 3), classifier_activation=None
    )
    for layer in model._flatten_layers():
        for rate in {"rate", "drop_path_rate"} & vars(layer).keys():
            setattr(layer, rate, 0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=False)
    return model


def norms_of(model: keras.Model) -> list[Any]:
    kind = keras.layers.BatchNormalization
    return [layer for layer in model._flatten_layers() if isinstance(layer, kind)]


def trained(name: str, how: str) -> dict[str, np.ndarray]:
    """What came out, by name, on one process or in one of two ways on several ranks."""
    keras.utils.clear_session(free_memory=True)
    gc.collect()  # the largest need what the last one had
    keras.utils.set_random_seed(7)
    model = here = built(name)
    before = [np.array(w) for w in model.get_weights()]
    if how == "ranks":
        for norm in norms_of(model):
            norm.synchronized = True
        here = tnt.Model(model)
    elif how == "stages":
        micro_batches = 1 if norms_of(model) else 2
        cut_at = cut_evenly(model, 2)
        here = tnt.Model(model, pipeline=tnt.Pipeline(2, micro_batches, cut_at=cut_at))
    chance = np.random.default_rng(1)
    x = chance.uniform(0, 255, (SAMPLES, *model.input_shape[1:])).astype(keras.config.floatx())
    y = np.arange(SAMPLES) % 5
    predictions = here.predict(x, batch_size=SAMPLES, verbose=0)
    history = here.fit(x, y, batch_size=SAMPLES, verbose=0).history
    after = model.get_weights()
    paths = [f"{i} {w.path}".replace("/", " ") for i, w in enumerate(model.weights)]
    changes = {p: a - b for p, a, b in zip(paths, after, before, strict=True)}
    return {"predictions": predictions, "loss": np.array(history["loss"]), **changes}


def compared(name: str, how: str, file: str) -> list[str]:
    """What is not as one process has left it in the file; there, it is written."""
    keras.config.set_floatx("float32" if name in LARGEST else "float64")
    try:
        found = trained(name, how)
        rounding = 1e-3 if name in LARGEST else 1e-6
    finally:
        keras.config.set_floatx("float32")
    if how == "alone":
        np.savez(file, **found)
        return []
    if comm.rank() > 0:
        return []  # fit has compared the ranks
    wrong = []
    with np.load(file) as expected:
        assert list(expected) == list(found)
        changed = max(np.linalg.norm(expected[key]) for key in expected)
        for key, value in found.items():
            own = expected[key]
            least = 0 if key in ("loss", "predictions") else rounding * changed
            off = np.linalg.norm(value - own)
            if not off <= rounding * (np.linalg.norm(own) + least):
                wrong.append(f"{key} by {off:.2g} of {np.linalg.norm(own):.2g}")
    return wrong


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMES)
def test_predictions_and_a_step_are_those_of_one_process(ranks, tmp_path: Path, name: str):
    file = tmp_path / "alone.npz"
    ranks.run(1, compared, name, "alone", str(file), timeout=400)
    for n, how in ((3, "ranks"), (2, "stages")):
        wrong, *_ = ranks.run(n, compared, name, how, str(file), timeout=400)
        assert not wrong, f"in {how}: {wrong}"
    file.unlink()
