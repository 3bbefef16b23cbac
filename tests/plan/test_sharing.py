"""Weights that ranks share out: who trains which."""

import random

import pytest

from tnt_notebook.plan.profile import Profile, Variable, trained_so
from tnt_notebook.plan.sharing import SMALL_BYTES, owners_of


@pytest.mark.parametrize("seed", range(50))
def test_no_rank_owns_much_more_than_the_mean(seed):
    chance = random.Random(seed)
    ranks, before = chance.randint(1, 6), chance.choice([0, 1 << 20])
    sizes = [chance.randint(1, 1 << chance.randint(4, 22)) for _ in range(chance.randint(0, 12))]
    load = [before] * ranks
    owners = owners_of(sizes, load)
    large = [place for place, size in enumerate(sizes) if size > SMALL_BYTES]
    # All large ones are somebody's, but for the smallest weight of all.
    assert {*large} - {*owners} <= {place for place in large if sizes[place] == min(sizes)}
    assert {*owners} <= {*large} and len(owners) < max(1, len(sizes))
    owned = [sum(sizes[p] for p, owner in owners.items() if owner == r) for r in range(ranks)]
    assert load == [before + own for own in owned]
    # Graham, Bounds on multiprocessing timing anomalies, 1969: largest first.
    most = max((sizes[place] for place in owners), default=0)
    assert max(owned) <= sum(owned) / ranks + most * (1 - 1 / ranks) + 1


def test_a_profile_knows_who_has_most():
    weights = [Variable(n, 4 * n) for n in (50_000, 40_000, 30_000, 10)]
    uses = [(0,), (1,), (2, 3)]
    profile = Profile([], [], [], [], {}, {}, [], [], uses, weights, slots=2.0)
    assert profile.trained(range(3)) == (4, 120_010)
    assert sum(map(profile.state_bytes, range(4))) == 3 * 4 * 120_010
    shared = trained_so(profile, False, False, owners=2)
    # 50,000 for one rank, 40,000 and 30,000 for the other; and the smallest for both.
    assert shared.trained(range(3)) == (3, 70_010)
    even = 4 * 120_010 + 2 * 4 * (60_000 + 10)
    assert sum(map(shared.state_bytes, range(4))) == even
    assert shared.uneven_bytes(range(3)) == 2 * 4 * 10_000
    # Of a hundred ranks, most own nothing.
    apart = trained_so(profile, False, False, owners=100)
    assert apart.trained(range(3)) == (2, 50_010)
    assert apart.uneven_bytes(range(3)) == 2 * 4 * (50_000 - 1200)
