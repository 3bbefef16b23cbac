"""What pages for those who come from elsewhere show as our side of a training, on two ranks."""

import re
from pathlib import Path

import pytest

from tests.magics.test_commands import typed

COMING = Path(__file__).parents[2] / "docs" / "coming"
PAGES = sorted(page for page in COMING.glob("*.md") if page.name != "index.md")
CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

#: For a cell that downloads its data, as ranks of tests cannot: as many pixels and classes, and
#: fewer samples.
MNIST = """%%tnt
import keras
import numpy as np
import tensorflow as tf

def mnist_dataset(batch_size):
    drawn = np.random.default_rng(1)
    x, y = drawn.integers(0, 256, (1280, 28, 28)), drawn.integers(0, 10, 1280)
    samples = tf.data.Dataset.from_tensor_slices((x / 255.0, y))
    return samples.shuffle(1280, seed=1).repeat().batch(batch_size)
"""


def cells(page: Path) -> list[str]:
    """Those that run on ranks; the last one trains."""
    blocks = CODE.findall(page.read_text(encoding="utf-8"))
    return [block for block in blocks if block.startswith("%%tnt")]


def test_every_page_has_both_sides():
    assert len(PAGES) >= 5
    for page in PAGES:
        blocks = CODE.findall(page.read_text(encoding="utf-8"))
        others = [block for block in blocks if not block.startswith("%")]
        for block in others:
            compile(block, page.name, "exec")
        assert others and cells(page)[-1].startswith("%%tnt_fit\n"), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_our_side_trains_on_two_ranks(shell_with_ranks, page):
    *before, training = cells(page)
    for cell in before:
        assert ".load_data()" in cell, "only data are replaced"
        assert typed(shell_with_ranks, MNIST) == ""
    shorter = training.replace("steps_per_epoch=70", "steps_per_epoch=5")
    said = typed(shell_with_ranks, shorter.replace("%%tnt_fit", "%%tnt_fit --wait", 1))
    fit = shell_with_ranks.user_ns["fit"]
    epochs = int(re.findall(r"epochs=(\d+)", training)[0])
    assert fit.error is None and fit.state == "finished", said
    assert len(fit.history["loss"]) == epochs and len(fit.frames[-1]["rates"]) == 2
    assert fit.model.count_params() > 0
    if "mnist" not in training:  # the labels of which are drawn
        assert fit.history["accuracy"][-1] > fit.history["accuracy"][0]
