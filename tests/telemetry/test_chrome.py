"""The trace that Chrome and Perfetto open, read back."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from tests.dashboard.runs import frames_of_a_run, frames_of_an_evaluation
from tests.telemetry.by_hand import step_of
from tests.telemetry.kept_runs import frames_with_steps
from tnt_notebook.telemetry.chrome import MESSAGES, chrome_trace
from tnt_notebook.telemetry.step_trace import BESIDE, Box, boxes


def by_phase(frames):
    trace = json.loads(json.dumps(chrome_trace(frames, "MLP"), allow_nan=False))
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def with_step(time, *rows):
    frames = frames_of_a_run(start=100.0)
    frames[-1]["step_trace"] = step_of(*(Box(*row) for row in rows), time=time)
    return frames


def test_a_box_is_an_event_on_the_clock_of_the_run():
    frames = with_step(
        102.0,
        (0, "F", 0, 3, 0.000, 0.010), (0, "S", 1, 3, 0.010, 0.012), (1, "R", 0, 3, 0.000, 0.012),
        (1, "B", 1, 3, 0.012, 0.040), (1, "X", 0, 2, 0.030, 0.050), (1, "O", 0, 0, 0.040, 0.050),
    )  # fmt: skip
    events = by_phase(frames)["X"]
    assert [(e["name"], e["cat"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in events] == [
        ("F3", "forward", 0, 0, 2_000_000, 10_000),
        ("S3", "send", 0, MESSAGES, 2_010_000, 2_000),
        ("R3", "wait for a message", 1, 0, 2_000_000, 12_000),
        ("B3", "backward", 1, 0, 2_012_000, 28_000),
        ("X2", "exchange", 1, MESSAGES, 2_030_000, 20_000),
        ("O", "optimizer", 1, 0, 2_040_000, 10_000),
    ]
    assert [event["args"] for event in events] == [
        {"step": 0, "stage": 0, "micro_batch": 3}, {"step": 0, "to_rank": 1, "message": 3},
        {"step": 0, "from_rank": 0, "micro_batch": 3}, {"step": 0, "stage": 1, "micro_batch": 3},
        {"step": 0, "exchange": 2}, {"step": 0},
    ]  # fmt: skip


def test_processes_and_threads_have_names():
    frames = with_step(102.0, (0, "F", 0, 0, 0.0, 1.0), (1, "F", 1, 0, 1.0, 2.0))
    said = by_phase(frames)["M"]
    names = [(e["pid"], e["tid"], e["args"]["name"]) for e in said if "name" in e["args"]]
    assert names == [
        (0, 0, "rank 0"), (1, 0, "rank 1"), (2, 0, "run"),
        (0, 0, "compute"), (0, MESSAGES, "messages"), (1, 0, "compute"), (1, MESSAGES, "messages"),
    ]  # fmt: skip


def test_what_goes_on_together_is_in_threads_of_its_own():
    overlapping = [(0, "X", 0, i, 0.1 * i, 0.1 * i + 0.25) for i in range(4)]
    events = by_phase(with_step(102.0, (0, "C", 0, 0, 0.0, 1.0), *overlapping))
    tids = [(e["name"], e["tid"] - MESSAGES) for e in events["X"] if e["name"] != "C"]
    assert tids == [("X0", 0), ("X1", 1), ("X2", 2), ("X3", 0)]
    threads = [
        e["args"]["name"] for e in events["M"] if e["name"] == "thread_name" and not e["pid"]
    ]
    assert threads == ["compute", "messages", "messages 2", "messages 3"]


@pytest.mark.parametrize("ranks", [2, 8])
def test_all_boxes_are_there_and_none_overlap_within_a_thread(ranks):
    frames = frames_with_steps(ranks)
    events = by_phase(frames)["X"]
    steps = [frame["step_trace"] for frame in frames]
    assert len(events) == sum(len(row["kinds"]) for step in steps for row in step["rows"])
    expected = sorted(
        (1e6 * (step["time"] + box.begin), 1e6 * (box.end - box.begin), box.rank, box.kind)
        for step in steps
        for box in boxes(step)
    )
    found = sorted((e["ts"], e["dur"], e["pid"], e["name"][0]) for e in events)
    for one, other in zip(found, expected, strict=True):
        assert one[:2] == pytest.approx(other[:2], abs=2e-3)  # nanoseconds
    threads = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        assert (event["tid"] >= MESSAGES) == (event["name"][0] in BESIDE)
    for spans in threads.values():
        assert all(one[1] <= next_[0] + 1e-3 for one, next_ in pairwise(sorted(spans)))


def test_rates_and_loss_are_counters_and_epochs_instants():
    frames = frames_of_a_run(start=50.0) + frames_of_an_evaluation(start=70.0)
    events = by_phase(frames)
    rates = [e for e in events["C"] if e["name"] == "samples/s"]
    assert len(rates) == 2 * len(frames)
    assert [e["args"] for e in rates if e["pid"] == 1][5] == {"samples/s": frames[5]["rates"][1]}
    losses = [(e["ts"], e["args"]["loss"]) for e in events["C"] if e["name"] == "loss"]
    assert losses[0] == (pytest.approx(1e6 * frames[0]["elapsed"]), frames[0]["logs"]["loss"])
    # Evaluation began 20 s later, on the same clock.
    assert losses[-1] == (pytest.approx(22e6), 0.25)
    ends = [(e["name"], e["ts"]) for e in events["i"]]
    assert [name for name, _ in ends] == ["epoch 1", "epoch 2", "epoch 3"]
    assert [ts for _, ts in ends] == pytest.approx([3.5e6, 6.0e6, 8.5e6])


def test_a_run_that_has_said_nothing_is_an_empty_trace():
    assert by_phase([])["X"] == []
