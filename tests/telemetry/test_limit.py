"""The sentence that says what limits training."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.telemetry.by_hand import step_of
from tnt_notebook.telemetry import Breakdown
from tnt_notebook.telemetry.breakdown import shares
from tnt_notebook.telemetry.evidence import USUAL, Evidence
from tnt_notebook.telemetry.limit import limit
from tnt_notebook.telemetry.step_trace import Box, StepTrace

GOOD = Breakdown(input=0.2, work=9.0, wait=0.0, skew=0.0, exchange=0.5, other=0.3)
#: 1 ms, of which the model works for 0.3 ms.
SHORT = Breakdown(input=4e-4, work=3e-4, wait=0.0, skew=0.0, exchange=1e-4, other=2e-4)
PIPELINE = [Breakdown(0, 6, 4, 0, 0, 0)] * 2
STAGES = {"stages": 2}


def said(of_ranks: Sequence[Breakdown], step: StepTrace | None = None, **about) -> tuple[str, str]:
    """The cause, and the sentence, where all samples are alike; of a setup or of other evidence."""
    setup = {name: about.pop(name) for name in list(about) if name in USUAL}
    traces = [] if step is None else [step]
    found = limit(Evidence([list(of_ranks)] * 3, traces, USUAL | setup, **about))
    return ("", "") if found is None else (found.cause, found.sentence)


@pytest.mark.parametrize(
    ("of_ranks", "about", "cause", "sentence"),
    [
        ([GOOD, GOOD], {}, "", ""),  # nothing is worth a sentence
        ([GOOD, GOOD._replace(work=9.9)], {}, "", ""),  # a small difference is none
        ([GOOD._replace(input=3.0)], {}, "input", "Ranks wait for input during 23% of a step: end"),
        ([GOOD._replace(input=3.0)], {"input_of_all": "every rank maps all"},
            "input made by all", "Ranks wait for input during 23% of a step, and every rank maps"),
        ([SHORT] * 2, {}, "short steps", "60% of a step is input, optimizer and Python: steps are"),
        (
            [GOOD._replace(skew=4.5), GOOD._replace(skew=4.5), GOOD._replace(work=14.0)], {},
            "slow rank", "Ranks wait during 31% of a step for rank 2: it works 1.6 times as long.",
        ),
        (
            [GOOD._replace(skew=5.0), GOOD._replace(work=14.0)], {"ranks_per_core": 2.0},
            "slow rank", "Rank 0 waits during 33% of a step for rank 1: it works 1.6 times as long,"
            " as 2 ranks share a core: start 1.",
        ),
        (
            [GOOD._replace(other=5.0), GOOD._replace(skew=5.0, other=0.3)], {},
            "busy rank", "Rank 1 waits during 33% of a step for rank 0: it is busy outside of its",
        ),
        (
            [GOOD._replace(input=5.0), *[GOOD._replace(skew=6.0)] * 5], {},
            "late input", "Ranks wait during 38% of a step for rank 0: its input comes later.",
        ),
        (
            [GOOD._replace(input=9.0), GOOD._replace(input=0.2, skew=9.0)], {},
            "input", "Ranks wait for input during 24% of a step",  # which one is later is chance
        ),
        (
            [GOOD._replace(skew=4.0), GOOD._replace(skew=3.5)], {},
            "uneven steps", "Ranks wait for each other during 27% of a step: their samples, or",
        ),
        # Where nobody waits for it, a rank that works for longer costs nothing.
        ([GOOD, GOOD._replace(work=5.0, other=1.0)], {"exchanged": "weights"}, "", ""),
        (
            [Breakdown(0, 9, 1, 0, 0, 0), Breakdown(0, 3, 7, 0, 0, 0)], STAGES, "uneven stages",
            "Rank 0 has 3.0 times the work of rank 1, which waits for it: give its stage fewer",
        ),
        (PIPELINE, STAGES, "bubble", "Ranks of the pipeline wait for each other during 40% of a"),
        ([GOOD._replace(exchange=5.0)] * 2, {}, "exchange", "34% of a step is exchange of gradie"),
        (
            [GOOD._replace(exchange=5.0)] * 2, {"exchanged": "weights"},
            "exchange", "34% of a step is exchange of weights",
        ),
        (
            [Breakdown(0, 3, 0, 3, 8, 0), Breakdown(0, 3, 0, 0, 8, 3)], {}, "exchange",
            "57% of a step is exchange of gradients",  # rather than a rank that is a little late
        ),
        (
            [GOOD._replace(other=9.0)], {}, "outside of the model",
            "48% of a step is optimizer, metrics, callbacks and Python: use larger batches, or st",
        ),
        ([GOOD._replace(conversion=5.0)], {}, "conversions", "Values move from layout to layout"),
    ],
)  # fmt: skip
def test_what_limits_training(of_ranks, about, cause, sentence):
    found, told = said(of_ranks, **about)
    assert found == cause
    assert told.startswith(sentence)


def test_input_is_told_what_helps_that_kind():
    waiting = [GOOD._replace(input=3.0)] * 2
    helps = {
        "arrays": "larger batches", "tf.data": ".prefetch(", "PyDataset": "workers=4",
        "DataLoader": "num_workers", "generator": "keras.utils.PyDataset", "other": "read ahead",
    }  # fmt: skip
    for kind, what in helps.items():
        assert what in said(waiting, input=kind)[1]
        assert (".prefetch" in said(waiting, input=kind)[1]) == (kind == "tf.data")


def waiting(sent_at: float) -> StepTrace:
    """Two ranks of which the second waits for 4 s of 10."""
    return step_of(
        Box(0, "F", 0, 0, 0, 1), Box(0, "S", 1, 0, sent_at, 5), Box(1, "R", 0, 0, 1, 5),
        Box(1, "F", 1, 0, 5, 10), schedule="gpipe", less_idle="zb-h1", formula=0.31,
    )  # fmt: skip


def uneven(slow: int, cut_by: str) -> str:
    """Of three stages, on ranks 0 to 2, one takes twice as long as the others."""
    works = [Breakdown(0, 10 if rank == slow else 5 + rank / 10, 6, 0, 0, 0) for rank in range(3)]
    boxes = [Box(rank, "F", rank, 0, rank, rank + 1) for rank in range(3)]
    layers = [["conv1", "conv2"], ["conv3", "conv5"], ["pool", "dense"]]
    step = step_of(*boxes, pipeline=3, ranks=3, cut_by=cut_by, layers=layers)
    cause, sentence = said(works, step, stages=3)
    assert cause == "uneven stages" and sentence.startswith(f"Rank {slow} has ")
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


def test_messages_of_a_pipeline_that_take_long_are_named():
    cause, sentence = said(PIPELINE, waiting(sent_at=2), **STAGES, hosts=2)
    assert cause == "messages"
    assert sentence.startswith("Rank 1 waits during 30% of a step for messages that are on their")
    assert "from rank 0: the link between them is slow" in sentence
    assert "link" not in said(PIPELINE, waiting(sent_at=2), **STAGES)[1]  # within a host is none
    # What is sent late is not the link's fault.
    cause, sentence = said(PIPELINE, waiting(sent_at=4), **STAGES)
    assert cause == "bubble"
    assert sentence.startswith("Ranks of the pipeline wait for each other during 40% of a step, ")
    assert "70% to fill and drain it (31% by the formula)" in sentence
    assert sentence.endswith("use more micro-batches, or schedule zb-h1.")


def test_a_slow_link_between_hosts_is_named():
    exchanging = [GOOD._replace(exchange=5.0)] * 2
    cause, sentence = said(exchanging, hosts=2, rate=12e6)
    assert cause == "slow network"
    assert "the link between hosts is slow, a rank sends 11.44 MB a second" in sentence
    for fast in (None, 5e9):
        assert said(exchanging, hosts=2, rate=fast)[0] == "exchange"


def test_nothing_is_said_too_early_or_of_what_is_in_few_samples():
    busy, idle = [GOOD._replace(exchange=9.0)], [GOOD]
    for samples, ended, agreeing in (
        ([busy] * 2, False, None), ([busy] * 3, False, 1.0), ([busy], True, 1.0), ([], True, None),
        ([busy, busy, idle], True, 2 / 3), ([busy, idle, idle, idle], True, None),
    ):  # fmt: skip
        found = limit(Evidence(samples, ended=ended))
        assert (found and found.agreeing) == agreeing
    unsure = limit(Evidence([busy, busy, idle]))
    assert unsure is not None and unsure.sentence.endswith("in 7 of 10 sampled steps.")


PARTS_S = st.floats(0, 10, allow_subnormal=False).map(lambda s: round(s, 3))


@given(st.data(), st.integers(1, 5), st.integers(1, 4))
def test_what_it_says_is_what_bars_show(data, ranks, samples):
    """Its share is the mean of bars of one colour: of all ranks, or of all but one."""
    breakdown = st.builds(
        Breakdown,
        PARTS_S,
        PARTS_S.map(lambda s: s + 0.1),
        PARTS_S,
        PARTS_S,
        PARTS_S,
        PARTS_S,
        PARTS_S,
    )
    steps = data.draw(st.lists(st.lists(breakdown, min_size=ranks, max_size=ranks),
                               min_size=samples, max_size=samples))  # fmt: skip
    evidence = Evidence(steps, setup={**USUAL, **STAGES})
    found = limit(evidence)
    if found is None:
        return
    bars = evidence.of_ranks
    groups = [bars, *(bars[:rank] + bars[rank + 1 :] for rank in range(ranks) if ranks > 1)]
    shown = {f"{share:.0%}" for group in groups for share in shares(group).values()}
    told = re.findall(r"\d+%", found.sentence)
    assert set(told) <= shown and f"{found.share:.0%}" in shown
    rank = re.search(r"for rank (\d+)", found.sentence)
    if rank is not None:
        waits = [bar.skew for bar in bars]
        assert waits[int(rank[1])] == min(waits)
