"""A run that was broken off goes on, and comes to what it would have come to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parallel import interrupted
from tests.parallel.interrupted import Result, assert_close, assert_equal

INPUTS = (
    "arrays",
    "tf.data",
    "tf.data repeated",
    "tf.data over epochs",
    "tf.data of unknown length",
    "PyDataset",
    "generator",
)


def cell(
    name: str, folder: str | None = None, at: int | None = None, options: dict[str, Any] = {}
) -> Result | str:
    """Runs one of `interrupted`."""
    function = getattr(interrupted, name, None) or interrupted.of_input(name)
    return interrupted.run(function, folder, at, **options)


_whole: dict[tuple, list] = {}


def whole(ranks, n: int, name: str) -> list[Result]:
    """What comes of a cell that is not broken off."""
    if (n, name) not in _whole:
        _whole[n, name] = ranks.run(n, cell, name)
    return _whole[n, name]


def check(ranks, n: int, name: str, folder: str, at: int) -> None:
    assert ranks.run(n, cell, name, folder, at) == ["broken off"] * n
    for ours, theirs in zip(ranks.run(n, cell, name, folder), whole(ranks, n, name), strict=True):
        assert_equal(ours, theirs)


@pytest.mark.parametrize("at", (3, 10, 12))  # the 10th ends an epoch
@pytest.mark.parametrize("n", (1, 2))
def test_the_result_is_that_of_a_run_that_was_not_broken_off(ranks, tmp_path, n, at):
    check(ranks, n, "with_everything", str(tmp_path), at)


@pytest.mark.parametrize("n", (1, 2))
@pytest.mark.parametrize("kind", INPUTS)
def test_it_sees_the_batches_that_it_would_have_seen(ranks, tmp_path, kind, n):
    check(ranks, n, kind, str(tmp_path), 12)


@pytest.mark.parametrize("at", (4, 13))
def test_a_fit_that_had_ended_is_not_trained_again(ranks, tmp_path, at):
    check(ranks, 2, "two_fits", str(tmp_path), at)


@pytest.mark.parametrize("stages", (0, 2))
@pytest.mark.parametrize("then", ((1, 0), (3, 0), (4, 2)))
def test_it_goes_on_on_other_ranks(ranks, tmp_path, stages, then):
    folder, (n, stages_then) = str(tmp_path), then
    assert ranks.run(2, cell, "plain", folder, 7, {"stages": stages}) == ["broken off"] * 2
    (expected,) = whole(ranks, 1, "plain")
    for ours in ranks.run(n, cell, "plain", folder, None, {"stages": stages_then}):
        assert_close(ours, expected)
