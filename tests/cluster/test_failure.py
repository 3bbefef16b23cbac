"""Errors of several ranks, told to a person."""

from tnt_notebook.cluster.requests.failure import Failure, rank_error

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


OF_KERAS = """Exception encountered when calling Sequential.call().

\x1b[1mInput 0 of layer 'dense' is incompatible: expected axis -1 to have value 8\x1b[0m

Arguments received by Sequential.call():
  • inputs=tf.Tensor(shape=(16, 5), dtype=float32)"""
OF_A_GRAPH = """Graph execution error:

Detected at node loss/Sparse defined at (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main

  File "/venv/lib/python3.11/site-packages/keras/src/losses/loss.py", line 67, in __call__

Received a label value of 8 which is outside the valid range of [0, 2).  Label values: 8 7
\t [[{{node loss/Sparse}}]] [Op:__inference_step_738]"""
OF_INPUT = """Graph execution error:

Detected at node PyFunc defined at (most recent call last):
<stack traces unavailable>
RuntimeError: the file is broken
Traceback (most recent call last):

  File "/venv/lib/python3.11/site-packages/tensorflow/script_ops.py", line 269, in __call__
    ret = func(*args)

RuntimeError: the file is broken


\t [[{{node PyFunc}}]]
\t [[IteratorGetNext]] [Op:__inference_step_1567]"""


def test_of_long_errors_what_helps_is_told():
    keras = Failure("ValueError", OF_KERAS, "calls")
    what = "Input 0 of layer 'dense' is incompatible: expected axis -1 to have value 8"
    where = "ValueError: Exception encountered when calling Sequential.call()."
    assert keras.summary == f"{where} {what}"
    first, second, arguments = keras.told.split("\n\n")
    assert (first, second) == (where, what) and arguments.endswith("dtype=float32)")
    label = "Received a label value of 8 which is outside the valid range of [0, 2)."
    graph = Failure("InvalidArgumentError", OF_A_GRAPH, "calls")
    assert graph.told == graph.summary == f"InvalidArgumentError: {label}  Label values: 8 7"
    broken = "RuntimeError: the file is broken"
    assert Failure("UnknownError", OF_INPUT, "calls").told == broken
    # Ranks whose texts differ in numbers of TensorFlow's have the same error.
    others = OF_INPUT.replace("1567", "1570")
    both = {i: Failure("UnknownError", text, "calls") for i, text in enumerate((OF_INPUT, others))}
    assert str(rank_error(both)) == f"ranks 0-1: {broken}"
    plain = "first line\nKeyError: 'hint'\nlast line"  # of a person, who means all of it
    assert Failure("ValueError", plain, "calls").told == f"ValueError: {plain}"
    assert Failure("ValueError", "x" * 3000, "calls").summary.endswith("x ...")


def test_who_does_not_show_tracebacks_is_told_the_line():
    at = "line 3 of the cell: model.fit(x)"
    error = rank_error({0: FREED, 1: Failure("ValueError", "a\nb", "\x1b[31mcalls\x1b[0m", at)})
    assert error.whole == f"rank 1: ValueError: a\nb\n\n{at}"
    assert str(error) == "rank 1: ValueError: a ..."
    assert error.traceback == "rank 1:\ncalls\nrank 0: freed from waiting"


def test_an_error_without_a_traceback_is_told_whole():
    error = rank_error({0: failure("first\nsecond", "")})
    assert str(error) == "rank 0: ValueError: first\nsecond"
    assert error.rendered == []


def test_ranks_that_were_all_freed_still_make_an_error():
    assert "PeerError" in str(rank_error({0: FREED, 2: FREED}))
