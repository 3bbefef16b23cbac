"""Random programs in which samples meet: what ranks compute is what one process computes."""

import keras
import numpy as np
import pytest

from tests.graph.programs import SPECS, Program, data
from tests.graph.together import OnAllRanks, uneven
from tests.support.cases import THOROUGH
from tnt_notebook.comm import world
from tnt_notebook.errors import ModelError

#: Programs for each number of ranks.
PROGRAMS = 200 if THOROUGH else 4


def differences(seeds: list[int]) -> list[str]:
    """Of programs that give something else on ranks: which, and how far off. Runs on ranks."""
    found = []
    floatx = keras.config.floatx()
    keras.config.set_floatx("float64")
    try:
        for seed in seeds:
            program = Program(seed, length=8)
            rows = (7, 1, 5, 2)[seed % 4]
            both = OnAllRanks(program, SPECS)
            batch = data(seed, rows)
            cuts = uneven(seed, rows, world().size)
            try:
                many = both.together(batch, cuts)
            except ModelError:  # a list of a loop that is of samples and of whole tensors
                continue
            pairs = zip(both.alone(batch), many, strict=True)
            off = [_off(one.numpy(), other.numpy()) for one, other in pairs]
            if not max(off) < 1e-9:
                found.append(f"seed {seed}, cuts {cuts}: off by {off}\n{program.said}")
    finally:
        keras.config.set_floatx(floatx)
    return found


def _off(one: np.ndarray, many: np.ndarray) -> float:
    assert one.shape == many.shape
    return float(
        np.max(np.abs(one - many), initial=0.0) / (1e-4 + np.max(np.abs(one), initial=0.0))
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_compute_what_one_process_computes(ranks, n):
    seeds = [10_000 * n + i for i in range(PROGRAMS if n > 1 else 1)]
    for found in ranks.run(n, differences, seeds, timeout=3600 if THOROUGH else 200):
        assert not found, "\n".join(found)
