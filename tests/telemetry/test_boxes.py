"""From events to the boxes of a step, on events made by hand."""

import numpy as np

from tests.telemetry.by_hand import events
from tnt_notebook.telemetry.boxes import boxes_of_step
from tnt_notebook.telemetry.collectives import collectives
from tnt_notebook.telemetry.events import NOT_TRAINING
from tnt_notebook.telemetry.typical_step import steps_of


def found(trace, phase=0, gradients_from=0, late=None):
    """In the newest step of a phase; of a late rank, its number and when it comes to all."""
    step = steps_of(trace, phase)[-1]
    inside = (trace["begin_ns"] >= step["begin_ns"]) & (trace["end_ns"] <= step["end_ns"])
    exchanges = collectives(trace[inside])
    if late:
        exchanges["last"], exchanges["there_ns"] = late
    made = boxes_of_step(trace, step, exchanges, gradients_from, training=phase == 0)
    made = made[["kind", "stage", "number", "begin_ns", "end_ns"]].tolist()
    return sorted((kind.decode(), *numbers) for kind, *numbers in made)


def action(stage: int, micro: int) -> int:
    return stage << 16 | micro


DATA_PARALLEL = (
    ("copy_in", 10, 20, 5), ("step", 0, 90),  # the step before
    ("input", 1000, 1100), ("ready", 1500, 1500, 20), ("ready", 1800, 1800, 21),
    ("copy_in", 1500, 1520, 20), ("exchange", 1520, 1600, 20), ("copy_out", 1600, 1610, 20),
    ("copy_in", 1800, 1810, 21), ("exchange", 1810, 1900, 21), ("copy_out", 1900, 1920, 21),
    ("optimizer", 1920, 1980), ("step", 1000, 2000),
)  # fmt: skip


def test_data_parallel():
    assert found(events(*DATA_PARALLEL)) == [
        ("C", 0, 0, 1100, 1800), ("D", 0, 0, 1000, 1100), ("O", 0, 0, 1920, 1980),
        ("X", 0, 0, 1500, 1610), ("X", 0, 1, 1800, 1920),
    ]  # fmt: skip


def test_an_exchange_begins_when_the_last_rank_has_come():
    boxes = found(events(*DATA_PARALLEL), late=(3, [1501, 1890]))
    assert [box for box in boxes if box[0] in "LX"] == [
        ("L", 3, 1, 1800, 1890), ("X", 0, 0, 1500, 1610), ("X", 0, 1, 1890, 1920),
    ]  # fmt: skip


def test_one_rank_computes_until_the_optimizer_is_left():
    trace = events(("input", 0, 1), ("optimizer", 900, 950), ("step", 0, 1000))
    assert found(trace) == [("C", 0, 0, 1, 900), ("O", 0, 0, 900, 950)]
    assert found(events(("input", 0, 1), ("step", 0, 1000))) == [("C", 0, 0, 1, 1000)]


def test_gradients_of_the_step_before_may_be_there_before_the_input():
    trace = events(
        ("ready", 100, 100, 20), ("copy_in", 100, 110, 20), ("exchange", 110, 700, 20),
        ("copy_out", 700, 710, 20), ("input", 0, 300), ("step", 0, 1000),
    )  # fmt: skip
    assert all(begin <= end for *_, begin, end in found(trace))


def test_a_pipeline():
    trace = events(
        ("receive", 5, 300, 4096), ("forward", 310, 400, action(1, 0)),
        ("send", 390, 450, 4100), ("receive", 310, 350, 4097),
        ("forward", 401, 500, action(1, 1)), ("send", 490, 550, 4100),
        ("receive", 401, 700, 4098), ("backward", 705, 990, action(1, 0)),
        ("forward", 600, 650, NOT_TRAINING | action(1, 0)),  # not of training
        ("input", 0, 1), ("step", 0, 1000),
    )  # fmt: skip
    trace["algorithm"][[0, 3, 6]] = 3
    trace["algorithm"][[2, 5]] = 2
    boxes = [
        ("B", 1, 0, 705, 990), ("F", 1, 0, 310, 400), ("F", 1, 1, 401, 500), ("R", 3, 0, 1, 300),
        ("R", 3, 0, 500, 700), ("S", 2, 0, 390, 450), ("S", 2, 1, 490, 550),
    ]  # fmt: skip
    assert found(trace) == boxes
    # Of exchanges, those of gradients, which there are between replicas only.
    for channel, exchanges in ((1030, []), (5000, [("X", 0, 0, 990, 998)])):
        exchange = ("copy_in", 990, 992, channel), ("copy_out", 996, 998, channel)
        both = np.concatenate([trace, events(*exchange)])
        assert found(both, gradients_from=4096) == [*boxes, *exchanges]


def test_evaluation():
    trace = events(
        ("forward", 310, 400, NOT_TRAINING | action(1, 0)), ("step", 300, 500, 1),
        ("forward", 610, 700, action(1, 0)), ("step", 600, 800),
    )  # fmt: skip
    assert found(trace, phase=1) == [("F", 1, 0, 310, 400)]
    assert found(trace) == [("F", 1, 0, 610, 700)]
