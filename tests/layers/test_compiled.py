"""Which losses and metrics can be computed of blocks: sums over numbers, and nothing else."""

from typing import Any

import keras
import pytest

from tnt_notebook.keras.compiled import (
    Crossentropy,
    accuracy_of,
    axes_of_sums,
    counts,
    crossentropy_of,
    loss_is_of,
    mean_is_of,
)


class Cubes(keras.losses.MeanSquaredError):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.mean(keras.ops.abs(y_true - y_pred) ** 3, axis=-1)


class Halves(keras.metrics.MeanSquaredError):
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        super().update_state(y_true, y_pred / 2, sample_weight)


@pytest.mark.core
def test_losses_that_are_sums_over_numbers():
    losses = keras.losses
    for loss, of in [
        (losses.MeanSquaredError(), "numbers"),
        (losses.Huber(reduction="sum"), "numbers"),
        (losses.BinaryCrossentropy(True), "numbers"),
        (losses.SparseCategoricalCrossentropy(ignore_class=0), "last axis"),
        (losses.CosineSimilarity(), "last axis"),
        (losses.CosineSimilarity(axis=1), None),
        (losses.MeanSquaredError(reduction=None), None),
        (losses.Hinge(), None),  # it looks at all labels, to see which kind these are
        (losses.Dice(), None),
        (Cubes(), None),
    ]:
        assert loss_is_of(loss) == of, loss


def test_metrics_that_are_means_of_samples():
    metrics, wrapped = keras.metrics, keras.metrics.MeanMetricWrapper
    for metric, of in [
        (metrics.get("mse"), "numbers"),
        (metrics.RootMeanSquaredError(), "numbers"),
        (metrics.BinaryAccuracy(), "numbers"),
        (metrics.SparseTopKCategoricalAccuracy(2), "last axis"),
        (wrapped(keras.losses.huber), "numbers"),
        (wrapped(lambda y_true, y_pred: y_pred), None),
        (metrics.MeanIoU(2), None),
        (Halves(), None),
    ]:
        assert mean_is_of(metric) == of, metric


def test_metrics_that_count():
    assert counts(keras.metrics.MeanIoU(2)) and counts(keras.metrics.AUC())
    assert not counts(keras.metrics.MeanIoU(2, axis=1))
    assert not counts(keras.metrics.FBetaScore())


def test_losses_that_are_made_of_sums():
    assert axes_of_sums(keras.losses.Dice(), 3) == {0, 1, 2}
    assert axes_of_sums(keras.losses.Tversky(axis=(1, -1)), 4) == {1, 3}
    assert axes_of_sums(keras.losses.MeanSquaredError(), 3) is None


def test_crossentropies_and_accuracies_of_classes():
    sparse = keras.losses.SparseCategoricalCrossentropy
    smooth = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    assert crossentropy_of(sparse(True)) == Crossentropy(sparse=True, of_logits=True)
    assert crossentropy_of(smooth) == Crossentropy(sparse=False, smoothing=0.1)
    assert crossentropy_of(sparse(ignore_class=0)) is None
    assert crossentropy_of(keras.losses.KLDivergence()) is None
    assert accuracy_of(keras.metrics.CategoricalAccuracy()) == Crossentropy(sparse=False)
    assert accuracy_of(keras.metrics.TopKCategoricalAccuracy()) is None
