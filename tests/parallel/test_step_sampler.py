"""What frames show of a step, on real ranks: each phase, with and without pipelines."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tnt_notebook import telemetry
from tnt_notebook.parallel.observe.step_sampler import about
from tnt_notebook.plan.families import make
from tnt_notebook.telemetry import Frame
from tnt_notebook.telemetry.bubble import actions_s, hidden, idle_of
from tnt_notebook.telemetry.step_trace import BESIDE, Box, boxes

MICRO_BATCHES = 3


def ran(stages: int, schedule: str) -> list[Frame]:
    keras.utils.set_random_seed(1)
    dense = [keras.layers.Dense(64, "relu") for _ in range(6)]
    model = keras.Sequential([keras.Input((32,)), *dense, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.ones((96, 32), "float32")
    pipeline = tnt.Pipeline(stages, MICRO_BATCHES, schedule) if stages > 1 else None
    frames: list[Frame] = []
    with tnt.distributed(report=frames.append, pipeline=pipeline):
        model.fit(x, x[:, :1], batch_size=12, epochs=2, verbose=0)
        model.evaluate(x, x[:, :1], batch_size=12, verbose=0)
        model.predict(x, batch_size=12, verbose=0)
    return frames


def steps_shown(frames: list[Frame]) -> dict[str, telemetry.StepTrace]:
    """Of each phase."""
    return {frame["phase"]: frame["step_trace"] for frame in frames if "step_trace" in frame}


@pytest.mark.parametrize(
    ("ranks_", "stages", "schedule"),
    [(1, 1, ""), (2, 1, ""), (2, 2, "1f1b"), (3, 3, "zb-h1"), (4, 2, "gpipe")],
)
def test_the_median_step_of_every_phase(ranks, ranks_, stages, schedule):
    frames = ranks.run(ranks_, ran, stages, schedule)[0]
    assert json.loads(json.dumps(frames)) == frames
    steps = steps_shown(frames)
    assert set(steps) == {"fit", "evaluate", "predict"}
    for phase, step in steps.items():
        assert step["ranks"] == ranks_ and step["pipeline"] == stages
        assert step["clock_error"] == 0 and step["which"] == "median"
        assert [row["rank"] for row in step["rows"]] == list(range(ranks_))
        assert 0 < step["seconds"] < telemetry.duration(telemetry.main_run(frames))
        for rank in range(ranks_):
            own = [box for box in boxes(step) if box.rank == rank]
            # A rank does one thing at a time; an optimizer begins with the first gradients.
            doing = [box for box in own if box.kind not in BESIDE + "O"]
            assert all(b.begin >= a.end - 2 * step["tick"] for a, b in pairwise(doing))
            count = Counter(box.kind for box in own)
            if stages == 1:
                assert count["C"] == 1 and not count["F"]
                assert count["O"] == (phase == "fit")
                assert (count["X"] > 0) == (ranks_ > 1)
                continue
            assert step["schedule"] == schedule and step["micro_batches"] == MICRO_BATCHES
            # Only replicas exchange gradients; what else is exchanged has no such name.
            assert (count["X"] > 0) == (phase == "fit" and ranks_ > stages)
            done = Counter(box.kind + str(box.number) for box in doing if box.kind in "FBIW")
            kinds = "F" if phase != "fit" else "FIW" if schedule == "zb-h1" else "FB"
            expected = {f"{kind}{m}" for kind in kinds for m in range(MICRO_BATCHES)}
            if kinds == "FIW" and rank == 0:  # nobody waits for gradients of its inputs
                expected -= {f"I{m}" for m in range(MICRO_BATCHES)} - set(done)
            assert set(done) == expected and set(done.values()) == {1}
            assert count["S"] > 0 or (rank == stages - 1 and phase != "fit") or ranks_ > stages
    fit = steps["fit"]
    if stages == 1:
        assert idle_of(fit) == {}
        assert set(hidden(fit)) == (set(range(ranks_)) if ranks_ > 1 else set())
    else:
        assert fit["cut_by"] == "times" and len(fit["layers"]) == stages
        ends = [name.partition("_") for names in fit["layers"] for name in names]
        numbers = [int(number or 0) for layer, _, number in ends if layer == "dense"]
        assert numbers == sorted(numbers) and numbers[-1] == numbers[0] + 6
        assert 0 <= fit["formula"] < 1  # zb-h1 idles for nothing where W takes longer than F and I
        assert "formula" not in steps["predict"]
        for idle in idle_of(fit).values():
            # Not of the step's own length: on a busy machine ranks begin it at different times.
            assert 0 <= sum(idle) < actions_s(fit)


def test_memory_and_operations_are_told(ranks):
    frames = ranks.run(2, ran, 1, "")[0]
    fit = telemetry.main_run(frames)
    assert len(telemetry.memory_of(fit)) == 2
    assert all(50 << 20 < used < 64 << 30 for used in telemetry.memory_of(fit))
    of_a_sample = 3 * 2 * (32 * 64 + 5 * 64 * 64 + 64)
    assert fit[-1]["flops"] == pytest.approx(of_a_sample, rel=1e-3)
    evaluation = [frame for frame in frames if frame["phase"] == "evaluate"]
    assert evaluation[-1]["flops"] == pytest.approx(of_a_sample / 3, rel=1e-3)
    assert telemetry.flop_rate(fit) == pytest.approx(
        fit[-1]["flops"] * telemetry.samples_per_s(fit)
    )


def test_what_is_said_of_a_step_beside_its_boxes():
    assert about(None, []) == {}
    schedule = make("1f1b", 2, 3)
    told = {"schedule": "1f1b", "micro_batches": 3, "less_idle": "zb-h1"}
    assert about(schedule, []) == told  # the trace has forgotten, or nothing was recorded
    forwards = [Box(0, "F", 0, micro, 0.0, 1.0) for micro in range(3)]
    assert about(schedule, forwards) == told  # of evaluation
    backwards = [Box(0, "B", 0, micro, 1.0, 3.0) for micro in range(3)]
    assert about(schedule, [*forwards, *backwards]) == {**told, "formula": 0.25}  # 1 / (3 + 1)
