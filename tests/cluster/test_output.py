"""How output of several ranks becomes one stream."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tnt_notebook.cluster.output.merger import Group, Item, Merger, ranks_label


def text(groups: Iterable[Group]) -> list[str]:
    return [f"{ranks_label(group.ranks)}: {group.item.content}" for group in groups]


def test_identical_lines_of_adjacent_ranks_come_once():
    merger = Merger(range(4))
    for rank, line in enumerate("aaba"):
        merger.write(rank, "stdout", f"{line}\n", now=0)
    assert text(merger.ready(0)) == ["ranks 0-1: a", "rank 2: b", "rank 3: a"]


def test_a_line_waits_for_the_slower_rank_but_not_for_long():
    merger = Merger(range(2), hold_s=0.5)
    merger.write(0, "stdout", "x\n", now=0)
    assert text(merger.ready(0.4)) == []
    assert text(merger.ready(0.5)) == ["rank 0: x"]
    merger.write(1, "stdout", "x\n", now=0.6)
    assert text(merger.ready(0.6)) == ["rank 1: x"]
    merger.write(1, "stdout", "y\n", now=0.7)
    merger.write(0, "stdout", "y\n", now=0.8)
    assert text(merger.ready(0.8)) == ["ranks 0-1: y"]


def test_a_rank_that_has_ended_is_not_waited_for():
    merger = Merger(range(3))
    merger.end(1, now=0)
    merger.write(0, "stdout", "x\n", now=0)
    merger.write(2, "stdout", "x\n", now=0)
    assert text(merger.ready(0)) == ["ranks 0,2: x"]


def test_lines_come_in_pieces_and_the_last_needs_no_end():
    merger = Merger(range(2))
    for piece in ("ab", "c\nd", "ef"):
        merger.write(0, "stdout", piece, now=0)
        merger.write(1, "stdout", piece, now=0)
    assert text(merger.ready(0)) == ["ranks 0-1: abc"]
    assert text(merger.rest(0)) == ["ranks 0-1: def"]


def test_of_a_progress_bar_the_last_state_remains():
    merger = Merger([0])
    for i in range(1000):
        merger.write(0, "stdout", "\b" * 5 + "\r" + f"{i}/999", now=0)
    assert text(merger.ready(9)) == []
    merger.write(0, "stdout", "\n", now=9)
    assert text(merger.ready(9)) == ["rank 0: 999/999"]


def test_a_return_at_the_end_of_a_piece_overwrites_with_the_next():
    merger = Merger([0])
    for piece in ("old\r", "new\r", "\n", "dos\r\n"):
        merger.write(0, "stdout", piece, now=0)
    assert text(merger.ready(0)) == ["rank 0: new", "rank 0: dos"]


def test_stdout_and_stderr_are_not_mixed_up():
    merger = Merger(range(2))
    merger.write(0, "stdout", "x\n", now=0)
    merger.write(1, "stderr", "x\n", now=0)
    assert [group.item.kind for group in merger.ready(0)] == ["stdout", "stderr"]


def test_rich_output_keeps_its_place_and_merges():
    merger = Merger(range(2))
    picture = Item("display", {"data": {"text/html": "<b>1</b>"}, "metadata": {}})
    for rank in range(2):
        merger.write(rank, "stdout", "before", now=0)
        merger.put(rank, picture, now=0)
        merger.write(rank, "stdout", "after\n", now=0)
    assert [group.item.content for group in merger.ready(0)] == ["before", picture.content, "after"]


def test_labels_read_as_a_person_writes_them():
    assert ranks_label([2]) == "rank 2"
    assert ranks_label(range(4)) == "ranks 0-3"
    assert ranks_label([0, 2, 3]) == "ranks 0,2-3"


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.text("ab\n\r", max_size=6), st.floats(0, 0.4)), max_size=40
    )
)
def test_every_line_comes_once_in_order_and_volume_stays_linear(writes):
    merger, now = Merger(range(4)), 0.0
    printed: dict[int, list[str]] = {rank: [] for rank in range(4)}
    groups = []
    for rank, piece, pause in writes:
        now += pause
        merger.write(rank, "stdout", piece, now)
        groups += merger.ready(now)
    groups += merger.rest(now)
    for group in groups:
        for rank in group.ranks:
            printed[rank].append(group.item.content)
    for rank in range(4):
        whole = "".join(piece for r, piece, _ in writes if r == rank)
        *lines, last = whole.split("\n")
        seen = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in [*lines, last]]
        assert printed[rank] == (seen if seen[-1] else seen[:-1])
    assert sum(len(g.item.content) for g in groups) <= sum(len(piece) for _, piece, _ in writes)
