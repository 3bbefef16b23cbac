"""Errors of several ranks, told to a person."""

from tnt_notebook.cluster.failure import Failure, rank_error

FREED = Failure("PeerError", "rank 1: ValueError: bad", "long traceback")


def failure(evalue: str = "bad", traceback: str = "line 1\nline 2") -> Failure:
    return Failure("ValueError", evalue, traceback)


def test_the_rank_that_failed_is_shown_and_the_freed_ones_get_a_line():
    error = rank_error({0: FREED, 1: failure(), 2: FREED, 3: FREED})
    assert str(error) == "rank 1: ValueError: bad"
    assert error._render_traceback_() == [
        "rank 1:",
        "line 1",
        "line 2",
        "ranks 0,2-3: freed from waiting",
        "RankError: rank 1: ValueError: bad",
    ]


def test_the_same_error_on_all_ranks_is_shown_once():
    error = rank_error({rank: failure(traceback=f"on {rank}") for rank in range(4)})
    assert error.rendered == ["ranks 0-3:", "on 0"]


def test_of_many_different_errors_three_are_shown_in_full():
    error = rank_error({rank: failure(str(rank), f"t{rank}") for rank in range(5)})
    assert error.rendered == [
        *("rank 0:", "t0", "rank 1:", "t1", "rank 2:", "t2"),
        *("rank 3: ValueError: 3", "rank 4: ValueError: 4"),
    ]
    assert str(error) == "rank 0: ValueError: 0 (and another error on ranks 1-4)"


def test_the_rank_that_failed_goes_before_those_that_were_interrupted_for_it():
    interrupted = Failure("KeyboardInterrupt", "", "in a wait")
    error = rank_error({0: interrupted, 1: failure(), 2: interrupted})
    assert str(error) == "rank 1: ValueError: bad (and another error on ranks 0,2)"


def test_of_an_error_of_ours_the_sentence_is_told_once():
    ours = Failure(
        "ModelError", "first.\nsecond", "line 3 of the cell: fit()\nModelError: first.\nsecond"
    )
    error = rank_error({0: ours, 1: ours})
    assert error.rendered == ["ranks 0-1:", "line 3 of the cell: fit()"]
    assert str(error) == "ranks 0-1: ModelError: first.\nsecond"


def test_an_error_without_a_traceback_is_told_whole():
    error = rank_error({0: failure("first\nsecond", "")})
    assert str(error) == "rank 0: ValueError: first\nsecond"
    assert error.rendered == []


def test_ranks_that_were_all_freed_still_make_an_error():
    assert "PeerError" in str(rank_error({0: FREED, 2: FREED}))
