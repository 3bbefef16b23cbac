"""What goes to whom: every row that is needed comes once, from whoever has it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tnt_notebook.parallel.layers.boxes import blocks, pieces
from tnt_notebook.parallel.layers.rules.window import Window


@given(st.integers(0, 40), st.integers(1, 9))
def test_blocks_are_those_of_numpy(size, parts):
    expected = [part.tolist() for part in np.array_split(np.arange(size), parts)]
    assert [list(range(*rows)) for rows in blocks(size, parts)] == expected


@st.composite
def needs(draw):
    size, parts = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    ends = st.integers(-3, size + 3)
    need = [sorted((draw(ends), draw(ends))) for _ in range(parts)]
    return size, [{1: rows} for rows in blocks(size, parts)], [{1: tuple(rows)} for rows in need]


@given(needs())
def test_every_row_that_is_needed_comes_once(case):
    size, have, need = case
    found = pieces(have, need)
    for target, box in enumerate(need):
        inside = [row for row in range(*box[1]) if 0 <= row < size]
        comes = [row for p in found if p.target == target for row in range(*p.box[1])]
        assert sorted(comes) == inside
    for piece in found:
        begin, end = have[piece.source][1]
        assert begin <= piece.box[1][0] < piece.box[1][1] <= end


@given(
    st.integers(1, 20), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3),
    st.sampled_from(["valid", "same", "causal"]),
)  # fmt: skip
def test_windows_are_those_of_a_convolution(size, kernel, stride, dilation, padding):
    window = Window(size, kernel, stride, dilation, padding)
    if window.out < 1:
        return
    before, after = window.pad
    rows = np.arange(-before, size + after)
    starts = range(0, len(rows) - window.extent + 1, stride)
    assert len(starts) == window.out
    (whole,) = window.rows(1)
    assert whole[0] == rows[starts[0]]
    assert whole[1] == rows[starts[-1]] + window.extent
