"""How large a part of a batch each replica has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnt_notebook.errors import MeshError
from tnt_notebook.parallel.data import Replica, share_of
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.plan.shares import checked, largest, shares_of


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(0, 200))
def test_every_sample_is_in_one_share(shares, total):
    ranks = range(len(shares))
    cuts = [share_of(total, Replica(rank, len(shares), tuple(shares))) for rank in ranks]
    assert [begin for begin, _ in cuts] + [total] == [0] + [end for _, end in cuts]
    assert max(end - begin for begin, end in cuts) <= largest(total, len(shares), shares)
    for (begin, end), share in zip(cuts, shares, strict=True):
        assert abs(end - begin - total * share / sum(shares)) < 1


@given(st.integers(1, 8), st.integers(0, 200))
def test_equal_shares_are_those_without(size, total):
    for rank in range(size):
        assert share_of(total, Replica(rank, size)) == share_of(
            total, Replica(rank, size, (2,) * size)
        )


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=16))
def test_ranks_of_different_speed_need_as_long(speeds):
    shares = shares_of(speeds)
    slowest, fastest = min(speeds), max(speeds)
    assert bool(shares) == (slowest <= 0.7 * fastest)
    if shares:
        assert min(shares) >= 1 and len(shares) == len(speeds)
        per_part = fastest / max(shares)
        near = [
            speed / part for speed, part in zip(speeds, shares, strict=True) if speed > fastest / 4
        ]
        assert all(0.85 * per_part < one < 1.2 * per_part for one in near)


def test_what_no_shares_are():
    assert checked("3, 1") == checked([3, 1]) == (3, 1)
    for wrong in ("", "3,x", "0,1", [1.5, 1], [True, 1], [-1, 2], []):
        with pytest.raises(ValueError, match="whole numbers greater than 0, one for each replica"):
            checked(wrong)
    assert FitOptions.of({"shares": "3,1"}).shares == (3, 1)
    with pytest.raises(MeshError, match=r"shared by 2 replicas of the model here.*\(3, 1, 2\)"):
        FitOptions(shares=(3, 1, 2), mesh=Mesh(data=2, model=2)).mesh_of(4)
