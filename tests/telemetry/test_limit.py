"""The sentence that says what limits training."""

import pytest

from tests.telemetry.by_hand import step_of
from tnt_notebook.telemetry import Breakdown
from tnt_notebook.telemetry.limit import limit, shares
from tnt_notebook.telemetry.step_trace import Box, StepTrace

GOOD = Breakdown(input=0.2, work=9.0, wait=0.0, skew=0.0, exchange=0.5, other=0.3)
PIPELINE = [Breakdown(0, 6, 4, 0, 0, 0)] * 2


@pytest.mark.parametrize(
    ("of_ranks", "sharing", "sentence"),
    [
        ([GOOD, GOOD], 1, "Ranks work for 90% of a step."),
        ([GOOD._replace(input=3.0)], 1, "Ranks wait for input during 23% of a step"),
        (
            [GOOD, GOOD, GOOD._replace(work=5.0, exchange=4.5), GOOD._replace(work=14.0)], 1,
            "Rank 3 works 1.8 times as long as the others",
        ),
        (
            [Breakdown(0, 9, 1, 0, 0, 0), Breakdown(0, 5, 5, 0, 0, 0)], 2,
            "Rank 0 has 1.8 times the work of the others, which wait for it: give its stage fewer",
        ),
        (PIPELINE, 2, "Ranks of the pipeline wait for each other during 40% of a step: use more"),
        ([GOOD._replace(exchange=5.0)] * 2, 1, "34% of a step is exchange of gradients"),
        (
            [GOOD._replace(other=5.0), GOOD._replace(skew=5.0, other=0.0)], 1,
            "Ranks wait during 34% of a step for rank 0, the last one: it is busy beside",
        ),
        (
            [Breakdown(0, 3, 0, 3, 8, 0), Breakdown(0, 3, 0, 0, 8, 3)], 1,
            "57% of a step is exchange of gradients",  # rather than a rank that is a little late
        ),
        ([GOOD._replace(other=9.0)], 1, "48% of a step is optimizer, metrics and Python"),
        ([GOOD, GOOD._replace(work=9.9)], 1, "Ranks work for"),  # a small difference is none
    ],
)  # fmt: skip
def test_what_limits_training(of_ranks, sharing, sentence):
    assert limit(of_ranks, sharing).startswith(sentence)


def waiting(sent_at: float) -> StepTrace:
    """Two ranks of which the second waits for 4 s of 10."""
    return step_of(
        Box(0, "F", 0, 0, 0, 1), Box(0, "S", 1, 0, sent_at, 5), Box(1, "R", 0, 0, 1, 5),
        Box(1, "F", 1, 0, 5, 10), schedule="gpipe", less_idle="zb-h1", formula=0.31,
    )  # fmt: skip


def uneven(slow: int, cut_by: str) -> str:
    """Of three stages, on ranks 0 to 2, one takes twice as long as the others."""
    works = [Breakdown(0, 10 if rank == slow else 5 + rank / 10, 1, 0, 0, 0) for rank in range(3)]
    boxes = [Box(rank, "F", rank, 0, rank, rank + 1) for rank in range(3)]
    layers = [["conv1", "conv2"], ["conv3", "conv5"], ["pool", "dense"]]
    step = step_of(*boxes, pipeline=3, ranks=3, cut_by=cut_by, layers=layers)
    sentence = limit(works, 3, step)
    assert sentence.startswith(f"Rank {slow} has ")
    return sentence.split("which wait for it: ")[1]


def test_a_stage_with_too_much_work_is_told_which_layer_it_should_give_to_whom():
    machine = "; or is its machine slower, or busy with something else?"
    assert uneven(0, "times") == f"move conv2, the last layer of its stage, to rank 1{machine}"
    assert uneven(2, "times") == f"move pool, the first layer of its stage, to rank 1{machine}"
    # Of both neighbours the one with less work.
    assert uneven(1, "times") == f"move conv3, the first layer of its stage, to rank 0{machine}"
    assert uneven(0, "cut_at") == "in cut_at, let rank 1's stage begin with conv2."
    assert uneven(2, "cut_at") == "in cut_at, let its stage begin behind pool."
    assert uneven(0, "SplitLayer") == "put the SplitLayer before conv2."


def test_a_slow_link_in_a_pipeline_is_named():
    sentence = limit(PIPELINE, 2, waiting(sent_at=2))
    assert sentence.startswith("Rank 1 waits during 30% of a step for messages that are on their")
    assert "from rank 0: the link between them is slow" in sentence
    # What is sent late is not the link's fault.
    sentence = limit(PIPELINE, 2, waiting(sent_at=4))
    assert sentence.startswith("Ranks of the pipeline wait for each other during 40% of a step, ")
    assert "70% to fill and drain it (31% by the formula)" in sentence
    assert sentence.endswith("use more micro-batches, or schedule zb-h1.")


def test_a_slow_link_between_hosts_is_named():
    exchanging = [GOOD._replace(exchange=5.0)] * 2
    sentence = limit(exchanging, rate=12e6)
    assert "the link between hosts is slow, a rank sends 11.44 MB a second" in sentence
    for fast in (None, 5e9):
        assert "slow" not in limit(exchanging, rate=fast)


def test_input_that_every_rank_makes_for_all_is_named():
    waiting = [GOOD._replace(input=3.0)] * 2
    why = "every rank maps all: map before shuffle"
    sentence = limit(waiting, input=why)
    assert sentence.startswith(f"Ranks wait for input during 23% of a step, and {why}. Let each ")
    assert "every rank" not in limit(waiting) and "every rank" not in limit([GOOD], input=why)


def test_shares_add_up():
    assert sum(shares([GOOD, GOOD._replace(work=1.0)]).values()) == pytest.approx(1)
    assert set(shares([Breakdown(0, 0, 0, 0, 0, 0)]).values()) == {0.0}
