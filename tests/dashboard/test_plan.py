"""What a plan says in words, and its timeline."""

import dataclasses
import json

import pytest

from tests.plan.test_prediction import PROFILE, planned
from tnt_notebook.dashboard.card.saved import PLOTLY
from tnt_notebook.dashboard.figures.step_figure import MOST_PLAIN_BOXES, figure_of, trace_of
from tnt_notebook.dashboard.figures.wording import short_time
from tnt_notebook.dashboard.reports.plan import (
    comparison,
    fastest,
    figure_bundle,
    headline,
    limit,
    memory,
    read,
)
from tnt_notebook.plan.families import make
from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.prediction import InputPlan, plan_of, with_input
from tnt_notebook.sizes import parsed_size, size


def test_words():
    assert headline(planned()) == (
        "Expect 1.3 samples/s, 1.33 times one rank: a step of 32 samples takes "
        "24 s, and ranks are idle for 33% of it (by the formula of 1f1b for 33%)."
    )
    assert " of 2 replicas, " in headline(planned(replicas=2))
    assert limit(planned()).startswith("Filling and emptying the pipeline costs 33% of a step: ")
    assert limit(planned(micro_batches=64, begins=(3,))) == (
        "Stage 0 (a to c) takes 3 times as long as stage 1, which waits for it. With equal stages "
        "a step would be 32% shorter."
    )
    slow = dataclasses.replace(PROFILE, transfer={2: 20.0})
    assert limit(planned(profile=slow)).startswith("Messages between ranks cost 45% of a step")
    assert limit(planned(micro_batches=256)).startswith("Nothing in particular limits it")
    assert memory(planned()) == (
        "Rank 0 needs most memory, 734 B: weights, gradients, optimizer state and activations."
    )


def test_what_is_read_for_a_step():
    assert read(planned()) == ""
    why = "every rank maps all: from_generator"
    slow = with_input(planned(), InputPlan("train", why, 32 / 96))
    assert read(slow) == (
        "Input: train delivers 0.3 samples/s, a batch in 96 s, while ranks compute for 24 s; "
        "every rank maps all: from_generator."
    )
    assert limit(slow) == (
        "Input limits it: ranks compute for 24 s of a step, and wait for the rest. %tnt_bench "
        "input train says what it waits for."
    )
    fast = with_input(planned(replicas=4), InputPlan("train", "", 32.0))
    assert read(fast).endswith("; each pipeline maps its own 1/4.")
    for plan in (slow, fast):
        layout = figure_bundle(plan)[PLOTLY]["layout"]
        assert any(f"input of a batch: {short_time(plan.input_s)}" in a["text"]
                   for a in layout["annotations"])  # fmt: skip
        assert layout["xaxis"]["range"][1] >= plan.step_s


def test_schedules_beside_each_other():
    plans = [planned(name, micro_batches=8) for name in ("gpipe", "1f1b", "zb-h1")]
    # With zb-h1 the last rank holds more micro-batches.
    assert comparison(plans) == (
        "zb-h1 is the fastest; 1f1b needs least memory, 734 B a rank instead of 924 B."
    )
    gpipe, steady, _ = plans
    assert fastest([gpipe, steady]) is steady and gpipe.step_s == steady.step_s
    assert comparison([gpipe, steady]) == (
        "1f1b is the fastest, and needs least memory, 734 B a rank."
    )
    # The fastest in the table is called so, and each number is that of the row that is named.
    spans = tuple(
        one._replace(begin=0.995 * one.begin, end=0.995 * one.end) for one in steady.spans
    )
    quick = dataclasses.replace(plans[2], spans=spans, schedule="zb-v")
    assert fastest([steady, quick]) is quick
    assert comparison([steady, quick]) == (
        "zb-v is the fastest; 1f1b is as fast within 1%, and needs least memory, 734 B a rank "
        "instead of 924 B."
    )


def test_the_timeline_has_a_box_for_each_action():
    plan = planned(micro_batches=3)
    idle, forward, backward = figure_of(trace_of(plan.timeline), measured=False).data
    assert (idle.name, forward.name, backward.name) == ("idle", "forward", "backward")
    assert list(idle.x) == [plan.step_s] * 2 and list(idle.y) == ["rank 0", "rank 1"]
    assert sorted(forward.y) == ["rank 0"] * 3 + ["rank 1"] * 3
    assert sorted(forward.text) == [*"001122"]
    first = next(span for span in plan.spans if span.action.kind == "B")
    i = [*backward.base].index(first.begin)
    assert backward.x[i] == 6 and backward.y[i] == f"rank {first.rank}"
    what = f"backward of micro-batch {first.action.micro}, stage "
    assert backward.customdata[i].startswith(what)


@pytest.mark.parametrize(
    ("ranks", "micro_batches"),
    [(2, 4), (16, 64), pytest.param(64, 128, marks=pytest.mark.thorough)],
)
def test_the_timeline_stays_small(ranks, micro_batches):
    n = 2 * ranks
    wiring = Wiring(tuple(((i,), (i + 1,)) for i in range(n)), (0,), (n,))
    profile = dataclasses.replace(
        PROFILE, forward=[1e-3] * n, inputs=[1e-3] * n, weights=[1e-3] * n, kept=[()] * n,
        inner_bytes=[0] * n, uses=[(0,)] * n,
    )  # fmt: skip
    schedule = make("zb-v", ranks, micro_batches)
    names = [str(i) for i in range(n)]
    plan = plan_of(wiring, profile, names, schedule, range(1, n), 1024)
    figure = figure_of(trace_of(plan.timeline), measured=False)
    boxes = sum(len(trace.x) for trace in figure.data[1:])
    assert boxes <= max(MOST_PLAIN_BOXES, 2 * len(plan.spans) // ranks)
    assert len(json.dumps(figure.to_plotly_json(), allow_nan=False)) < 300_000


def test_sizes_are_read_as_they_are_written():
    written = ["4GB", "1.5 GiB", "800M", "1 KB", "17"]
    assert [parsed_size(text) for text in written] == [4 << 30, 3 << 29, 800 << 20, 1024, 17]
    sizes = [size(count) for count in (4 << 30, 3 << 29, 1023, 2 << 40)]
    assert sizes == ["4 GB", "1.5 GB", "1023 B", "2 TB"]
    for text in ("", "GB", "-1", "0", "4 XB", "1,5GB"):
        with pytest.raises(ValueError, match="write sizes like 4GB"):
            parsed_size(text)
